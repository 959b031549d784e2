//! Commands for `scs/NAME`: get, tree, status, history, pause, resume, undo and set image of SidecarSets.

mod change;
mod history;
mod list;
mod scene;
mod set;
#[cfg(test)]
mod tests;
mod tree;
mod verdict;

use std::time::Duration;

use gamekeeper_core::api::names::PLUGIN_FIELD_MANAGER;
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::change::image::{NewImage, outcome, replace_images};
use crate::change::patch_between;
use crate::cluster::MAX_ATTEMPTS;
use crate::cluster::{Cluster, not_installed};
use crate::command::put;
use crate::error::Error;
use crate::kind::{SIDECAR_SET_KINDS, is_kind, name_after};
use crate::options::{ChangeOptions, ClusterOptions, Output, WriteOptions};
use crate::page::sanitize;
use crate::poll;
use crate::print;
use crate::style::Style;
use crate::suggest::closest;
use crate::verdict::{End, Verdict};
use crate::view::{none_found, status as sentences};

pub use change::Change;
use history::{Edit, History};
use scene::SidecarScene;
pub use set::Set;
use verdict::game;
pub use verdict::judge;

/// How often the tree of a set is read while it is watched. The set may select all pods in the cluster.
const TREE_INTERVAL: Duration = Duration::from_secs(3);

/// The name of a set as users type it.
pub fn short_name(name: &str) -> String {
    format!("{}/{name}", SIDECAR_SET_KINDS[0])
}

/// The name of the SidecarSet that the words refer to; None if they refer to another kind.
pub fn name_in(words: &[String]) -> Option<&str> {
    name_after(words, &SIDECAR_SET_KINDS).filter(|name| !name.is_empty())
}

/// Whether the words refer to SidecarSets: to all of them, or to one.
pub fn are_requested(words: &[String]) -> bool {
    let is_all = matches!(words, [word] if is_kind(word, &SIDECAR_SET_KINDS));
    is_all || name_in(words).is_some()
}

/// The completions of a word: `KIND/NAME` for each set that matches, with the first name of the kind that matches.
pub fn completions<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let kinds = SIDECAR_SET_KINDS.iter().map(|kind| format!("{kind}/"));
    let mut kinds = kinds.filter(|kind| kind.starts_with(word) || word.starts_with(kind));
    let Some(kind) = kinds.next() else {
        return Vec::new();
    };
    let all = names.map(|name| format!("{kind}{name}"));
    all.filter(|name| name.starts_with(word)).collect()
}

/// Whether there is a set with this name that the user may read.
pub async fn exists(cluster: &Cluster, name: &str) -> bool {
    let api = cluster.sidecar_sets();
    let found = cluster.send(async || api.get_metadata_opt(name).await).await;
    matches!(found, Ok(Some(_)))
}

pub async fn get(
    target: &ClusterOptions,
    words: &[String],
    selector: Option<String>,
    output: Option<Output>,
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let sets = match name_in(words) {
        Some(_) if selector.is_some() => {
            let why = "a name and a selector are mutually exclusive: remove one of them";
            return Err(Error::Usage(why.to_owned()));
        }
        Some(name) => {
            let set = find(&cluster, name).await?;
            if let Some(output) = output {
                return put(&print::object(&set.object, output)?);
            }
            vec![set]
        }
        None => list_all(&cluster, selector).await?,
    };
    match output {
        Some(output) => {
            let objects: Vec<&Value> = sets.iter().map(|set| &set.object).collect();
            put(&print::list(&objects, output)?)
        }
        None if sets.is_empty() => {
            eprintln!("{}", none_found(None));
            Ok(())
        }
        None => put(&list::list(&sets, Style::of_stdout(), Timestamp::now())),
    }
}

/// All sets that the selector matches.
pub async fn list_all(cluster: &Cluster, selector: Option<String>) -> Result<Vec<Set>, Error> {
    let params = ListParams { label_selector: selector, ..ListParams::default() };
    let api = cluster.sidecar_sets();
    let found = cluster.send(async || api.list(&params).await).await;
    let found = found.map_err(|error| match error.is_404() {
        true => not_installed("SidecarSet", &short_name("NAME")),
        false => error,
    })?;
    found.items.into_iter().map(Set::read).collect()
}

async fn find(cluster: &Cluster, name: &str) -> Result<Set, Error> {
    let api = cluster.sidecar_sets();
    if let Some(object) = cluster.send(async || api.get_opt(name).await).await? {
        return Set::read(object);
    }
    let all = list_all(cluster, None).await?;
    let missing = format!("no SidecarSet {name:?}");
    Err(Error::NotFound(match closest(name, all.iter().map(Set::name)) {
        Some(near) => format!("{missing}: did you mean {}?", short_name(near)),
        None => format!("{missing}: see kubectl game get {}", SIDECAR_SET_KINDS[0]),
    }))
}

/// Shows the tree of a set; with `watch`, whenever it changes, until the set is deleted.
pub async fn show_tree(
    target: &ClusterOptions,
    name: &str,
    watch: bool,
    max_pods: usize,
) -> Result<(), Error> {
    let read = async |cluster: &Cluster| {
        let set = find(cluster, name).await?;
        SidecarScene::read(cluster, set, target.namespace.as_deref()).await
    };
    poll::show(target, watch.then_some(TREE_INTERVAL), read, |scene, style, now| {
        tree::tree(scene, max_pods, style, now)
    })
    .await
}

pub async fn status(
    target: &ClusterOptions,
    name: &str,
    wait: Option<Option<Duration>>,
    output: Option<Output>,
) -> Result<u8, Error> {
    let read = async |cluster: &Cluster| find(cluster, name).await;
    let set = match wait {
        None => read(&Cluster::connect(target).await?).await?,
        Some(limit) => {
            let is_over = |set: &Set| judge(set).end != End::InProgress;
            let mut last = String::new();
            let report = |set: &Set| {
                let line = sentences::sentence(&short_name(name), &judge(set));
                if output.is_none() && line != last {
                    put(&line)?;
                }
                last = line;
                Ok(())
            };
            poll::until(target, limit, read, is_over, report).await?
        }
    };
    let verdict = status_verdict(&set);
    put(&match output {
        None => sentences::text(&short_name(name), &verdict, &[], Style::of_stdout()),
        Some(Output::Name) => set.full_name() + "\n",
        Some(output) => print::object(&data(&set, &verdict), output)?,
    })?;
    if wait.is_some() && verdict.end == End::InProgress {
        eprintln!("timed out waiting: the update continues");
    }
    Ok(verdict.exit_code())
}

/// The verdict that `status` prints. While pods wait, it refers the user to the tree, which shows what they wait for.
fn status_verdict(set: &Set) -> Verdict {
    let mut verdict = judge(set);
    if verdict.word == "Waiting" && verdict.commands.is_empty() {
        let tree = format!("tree {}", short_name(set.name()));
        verdict.commands.push(game("see these pods and their workloads with", &tree));
    }
    verdict
}

fn data(set: &Set, verdict: &Verdict) -> Value {
    let mut data = sentences::verdict_data(verdict);
    data["kind"] = json!("SidecarSet");
    data["name"] = json!(set.name());
    data
}

/// Pauses or resumes the update of a set's pods.
pub async fn change(
    target: &ClusterOptions,
    options: &ChangeOptions,
    name: &str,
    change: Change,
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let (patch, outcome) = change::patch(&find(&cluster, name).await?, change)?;
    let params = params(&options.write);
    let api = cluster.sidecar_sets();
    let patch = Patch::Merge(&patch);
    let patched = cluster.send(async || api.patch(name, &params, &patch).await);
    show_changed(&Set::read(patched.await?)?, &options.write, outcome)
}

fn params(write: &WriteOptions) -> PatchParams {
    PatchParams {
        dry_run: write.dry_run,
        field_manager: Some(PLUGIN_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Prints a set after a change.
fn show_changed(set: &Set, write: &WriteOptions, outcome: &str) -> Result<(), Error> {
    match write.output {
        Some(output) => put(&print::object(&set.object, output)?),
        None => {
            let dry_run = if write.dry_run { " (server dry run)" } else { "" };
            put(&format!("{} {outcome}{dry_run}\n", set.full_name()))
        }
    }
}

/// Shows the revisions of a set, or one of them.
pub async fn show_history(
    target: &ClusterOptions,
    name: &str,
    revision: Option<i64>,
    output: Option<Output>,
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let history = History::read(&cluster, find(&cluster, name).await?).await?;
    if let Some(number) = revision {
        return put(&history.details(history.revision_numbered(number)?)?);
    }
    put(&match output {
        Some(output) => print::list(&history.revisions, output)?,
        None => history.table(Style::of_stdout(), Timestamp::now()),
    })
}

/// Rolls a set back, and decides again if it has changed in the meantime.
pub async fn undo(
    target: &ClusterOptions,
    options: &ChangeOptions,
    name: &str,
    to: Option<i64>,
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let decide = async |set: Set| {
        let history = History::read(&cluster, set).await?;
        let undo = history.undo(to)?;
        Ok((history.set, undo))
    };
    edit(&cluster, &options.write, name, decide).await
}

/// Sets images of a set's containers.
pub async fn set_images(
    target: &ClusterOptions,
    write: &WriteOptions,
    name: &str,
    images: &[NewImage],
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let decide = async |set: Set| {
        let mut after = set.object.clone();
        let lists = ["/spec/containers", "/spec/initContainers"];
        replace_images(&mut after, lists, &short_name(set.name()), images)?;
        let outcome = outcome(&set.object, &after).to_owned();
        Ok((set, Edit { after, outcome, note: None }))
    };
    edit(&cluster, write, name, decide).await
}

/// Changes a set, and decides again if it has changed in the meantime.
async fn edit(
    cluster: &Cluster,
    write: &WriteOptions,
    name: &str,
    decide: impl AsyncFn(Set) -> Result<(Set, Edit), Error>,
) -> Result<(), Error> {
    let api = cluster.sidecar_sets();
    let params = params(write);
    let mut attempt = 1;
    let (set, edit) = loop {
        let (set, edit) = decide(find(cluster, name).await?).await?;
        let Some(patch) = patch_between(&set.object, &edit.after) else {
            break (set, edit);
        };
        let patch = Patch::Json::<()>(patch);
        let patched = cluster.send(async || api.patch(name, &params, &patch).await);
        match patched.await {
            Ok(set) => break (Set::read(set)?, edit),
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    };
    show_changed(&set, write, &edit.outcome)?;
    if let Some(note) = edit.note {
        eprintln!("note: {}", sanitize(&note));
    }
    Ok(())
}
