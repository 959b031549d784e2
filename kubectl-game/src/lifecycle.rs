//! Commands for `cluster/NAME`: status, tree, pause, resume and retry of lifecycle hooks.

mod tree;

use std::time::Duration;

use gamekeeper_core::api::names::{PLUGIN_FIELD_MANAGER, RETRY_ANNOTATION};
use gamekeeper_core::api::{Cluster as Lifecycle, ClusterPhase, HookRun};
use gamekeeper_core::kstatus::is_of_kstatus;
use gamekeeper_core::lifecycle::READY;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::command::put;
use crate::error::{Error, refuse};
use crate::follow::REDRAW_INTERVAL;
use crate::kind::{CLUSTER_KINDS, name_after};
use crate::options::{ChangeOptions, ClusterOptions, Output};
use crate::page::{Page, sanitize};
use crate::poll;
use crate::print;
use crate::style::{Style, Tone};
use crate::table::{Cell, Table};
use crate::verdict::End;

/// How a command changes a Cluster.
#[derive(Clone, Copy)]
pub enum Change {
    Pause,
    Resume,
    Retry,
}

/// The name of the Cluster that the words refer to; None if they refer to another kind.
pub fn name_in(words: &[String]) -> Option<&str> {
    name_after(words, &CLUSTER_KINDS).filter(|name| !name.is_empty())
}

pub async fn status(
    target: &ClusterOptions,
    name: &str,
    wait: Option<Option<Duration>>,
    output: Option<Output>,
) -> Result<u8, Error> {
    let found = match wait {
        None => get(&Cluster::connect(target).await?, name).await?,
        Some(limit) => {
            let mut last = String::new();
            let report = |cluster: &Lifecycle| {
                let line = sentence(cluster);
                if output.is_none() && line != last {
                    put(&format!("{line}\n"))?;
                }
                last = line;
                Ok(())
            };
            let is_over = |found: &Lifecycle| exit_code(found) != IN_PROGRESS;
            let read = async |cluster: &Cluster| get(cluster, name).await;
            poll::until(target, limit, read, is_over, report).await?
        }
    };
    put(&match output {
        Some(output) => print::object(&value(&found)?, output)?,
        None => table(&found, Style::of_stdout()),
    })?;
    let code = exit_code(&found);
    if wait.is_some() && code == IN_PROGRESS {
        eprintln!("timed out waiting: the scripts continue");
    }
    Ok(code)
}

async fn get(cluster: &Cluster, name: &str) -> Result<Lifecycle, Error> {
    let api = cluster.lifecycles();
    cluster.send(async || api.get(name).await).await
}

/// Shows the tree of a Cluster; with `watch`, whenever it changes, until the Cluster is deleted.
pub async fn show_tree(target: &ClusterOptions, name: &str, watch: bool) -> Result<(), Error> {
    let interval = watch.then_some(REDRAW_INTERVAL);
    let read = async |cluster: &Cluster| get_with_runs(cluster, name).await;
    poll::show(target, interval, read, |(found, runs), style, now| {
        tree::tree(found, runs, style, now)
    })
    .await
}

async fn get_with_runs(cluster: &Cluster, name: &str) -> Result<(Lifecycle, Vec<HookRun>), Error> {
    let found = get(cluster, name).await?;
    let api = cluster.lifecycle_runs();
    let runs = cluster.send(async || api.list(&ListParams::default()).await);
    Ok((found, runs.await?.items))
}

pub async fn change(
    target: &ClusterOptions,
    options: &ChangeOptions,
    name: &str,
    change: Change,
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let api = cluster.lifecycles();
    let found = get(&cluster, name).await?;
    let (patch, outcome) = patch(&found, change, Timestamp::now())?;
    let params = PatchParams {
        dry_run: options.write.dry_run,
        field_manager: Some(PLUGIN_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patched =
        cluster.send(async || api.patch(name, &params, &Patch::Merge(&patch)).await).await?;
    match options.write.output {
        Some(output) => put(&print::object(&value(&patched)?, output)?),
        None => {
            let dry_run = if options.write.dry_run { " (server dry run)" } else { "" };
            put(&format!("cluster.tkex.tencent.com/{name} {outcome}{dry_run}\n"))
        }
    }
}

fn value(cluster: &Lifecycle) -> Result<Value, Error> {
    serde_json::to_value(cluster).map_err(|error| Error::Unexpected(error.to_string()))
}

/// The merge patch of a change, and its outcome in words.
fn patch(
    cluster: &Lifecycle,
    change: Change,
    now: Timestamp,
) -> Result<(Value, &'static str), Error> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    match (change, cluster.spec.paused) {
        (Change::Pause, true) => refuse(format!("cluster/{name} is already paused")),
        (Change::Resume, false) => refuse(format!("cluster/{name} is not paused")),
        (Change::Pause, false) => Ok((json!({"spec": {"paused": true}}), "paused")),
        (Change::Resume, true) => Ok((json!({"spec": {"paused": false}}), "resumed")),
        (Change::Retry, _)
            if !steps_that_need_action(cluster).any(|it| it.reason.starts_with("Failed")) =>
        {
            refuse(format!("no script of cluster/{name} has failed: nothing to retry"))
        }
        (Change::Retry, _) => {
            let retry = json!({RETRY_ANNOTATION: now.to_string()});
            Ok((json!({"metadata": {"annotations": retry}}), "retried"))
        }
    }
}

/// The state of a Cluster in one word and one sentence.
pub struct Outline {
    pub end: End,
    pub word: &'static str,
    pub tone: Tone,
    pub sentence: String,
}

/// Outlines the state of a Cluster.
pub fn outline(cluster: &Lifecycle) -> Outline {
    let (end, tone) = match exit_code(cluster) {
        0 => (End::Done, Tone::Good),
        IN_PROGRESS => (End::InProgress, Tone::Busy),
        _ => (End::Stopped, Tone::Bad),
    };
    let sentence = ready(cluster).map_or_else(String::new, |it| it.message.clone());
    Outline { end, word: phase(cluster), tone, sentence }
}

/// When condition Ready last changed.
pub fn since(cluster: &Lifecycle) -> Option<Timestamp> {
    ready(cluster).map(|it| it.last_transition_time.0)
}

/// The conditions of the steps, and Ready. Those of kstatus say nothing that Ready does not say.
pub fn conditions(cluster: &Lifecycle) -> impl Iterator<Item = &Condition> {
    let status = cluster.status.as_ref();
    let conditions = status.into_iter().flat_map(|status| &status.conditions);
    conditions.filter(|it| !is_of_kstatus(&it.type_))
}

/// Conditions of steps that require action from the user.
fn steps_that_need_action(cluster: &Lifecycle) -> impl Iterator<Item = &Condition> {
    conditions(cluster).filter(|it| it.status == "False" && it.type_ != READY)
}

fn ready(cluster: &Lifecycle) -> Option<&Condition> {
    conditions(cluster).find(|it| it.type_ == READY)
}

/// The exit code while scripts run.
const IN_PROGRESS: u8 = 3;

/// The exit code, as for rollouts: 0 complete, 2 stopped until a user acts, 3 in progress.
fn exit_code(cluster: &Lifecycle) -> u8 {
    let observed = cluster.status.as_ref().map(|it| it.observed_generation);
    if observed.unwrap_or_default() != cluster.metadata.generation.unwrap_or_default() {
        return IN_PROGRESS;
    }
    let ready = ready(cluster);
    let is_held = ready.is_some_and(|it| {
        ["AnotherCluster", "InvalidSpec", "FailedWrite", "Paused"].contains(&it.reason.as_str())
    });
    if ready.is_some_and(|it| it.status == "True") {
        0
    } else if is_held || steps_that_need_action(cluster).next().is_some() {
        2
    } else {
        IN_PROGRESS
    }
}

fn phase(cluster: &Lifecycle) -> &'static str {
    let status = cluster.status.as_ref();
    match status.map(|it| it.phase).unwrap_or_default() {
        ClusterPhase::Initializing => "Initializing",
        ClusterPhase::Running => "Running",
        ClusterPhase::Upgrading => "Upgrading",
        ClusterPhase::Terminating => "Terminating",
    }
}

/// The state in one line.
fn sentence(cluster: &Lifecycle) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let message = ready(cluster).map_or("", |it| it.message.as_str());
    sanitize(&format!("cluster/{name}: {}: {message}", phase(cluster))).into_owned()
}

fn tone(condition: &Condition) -> Tone {
    match condition.status.as_str() {
        "True" => Tone::Good,
        "False" if condition.reason != "Waiting" => Tone::Bad,
        _ => Tone::Busy,
    }
}

/// The state, and a table of the conditions.
fn table(cluster: &Lifecycle, style: Style) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let mut page = Page::new(style);
    let phase = phase(cluster);
    let master = status.first_master.as_deref().unwrap_or("not known");
    let line = format!(
        "cluster/{name}: {phase}, {} of {} nodes installed, first master {master}",
        status.installed_nodes, status.nodes
    );
    page.line(Tone::Plain, &line);
    let mut table = Table::new(["CONDITION", "REASON", "MESSAGE"]);
    for condition in conditions(cluster) {
        table.push([
            Cell::from(condition.type_.as_str()),
            Cell::state(tone(condition), condition.reason.as_str()),
            Cell::from(condition.message.as_str()),
        ]);
    }
    page.text() + &table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(paused: bool, conditions: Value) -> Lifecycle {
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let conditions: Vec<Value> = conditions
            .into_iter()
            .map(|it| {
                json!({
                    "type": it[0], "status": it[1], "reason": it[2], "message": it[3],
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .collect();
        let cluster = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "xa"},
            "spec": {"paused": paused},
            "status": {
                "phase": "Initializing", "firstMaster": "master-0", "nodes": 3, "installedNodes": 1,
                "conditions": conditions,
            },
        });
        serde_json::from_value(cluster).expect("a Cluster")
    }

    fn failing() -> Lifecycle {
        cluster(
            false,
            json!([
                ["EnsureCopyFiles", "True", "Passed", "passed on 3 of 3 nodes"],
                ["EnsurePreInstallHook", "False", "FailedInit", "on node a failed: exit 3"],
                ["Ready", "False", "FailedInit", "on node a failed: exit 3"],
            ]),
        )
    }

    #[test]
    fn a_cluster_is_named_like_other_objects() {
        for (text, expected) in [
            ("cluster/xa", Some("xa")),
            ("clusters xa", Some("xa")),
            ("Cluster.tkex.tencent.com/xa", Some("xa")),
            ("gd/cluster", None),
            ("cluster", None),
            ("cluster/", None),
        ] {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(name_in(&words), expected, "{text}");
        }
    }

    #[test]
    fn the_status_shows_each_condition() {
        assert_eq!(
            table(&failing(), Style::PLAIN),
            "cluster/xa: Initializing, 1 of 3 nodes installed, first master master-0\n\
             CONDITION              REASON       MESSAGE\n\
             EnsureCopyFiles        Passed       passed on 3 of 3 nodes\n\
             EnsurePreInstallHook   FailedInit   on node a failed: exit 3\n\
             Ready                  FailedInit   on node a failed: exit 3\n"
        );
    }

    #[test]
    fn the_state_is_one_line() {
        assert_eq!(sentence(&failing()), "cluster/xa: Initializing: on node a failed: exit 3");
    }

    #[test]
    fn the_exit_code_shows_whether_a_user_must_act() {
        let code_with_ready = |status: &str, reason: &str| {
            exit_code(&cluster(false, json!([["Ready", status, reason, ""]])))
        };
        assert_eq!(code_with_ready("True", "Installed"), 0);
        assert_eq!(code_with_ready("False", "Waiting"), 3);
        assert_eq!(code_with_ready("False", "Paused"), 2);
        assert_eq!(exit_code(&failing()), 2);
        assert_eq!(exit_code(&cluster(false, json!([]))), 3);
        // The operator has not observed the spec yet.
        let mut changed = cluster(false, json!([["Ready", "True", "Installed", ""]]));
        changed.metadata.generation = Some(7);
        assert_eq!(exit_code(&changed), 3);
    }

    #[test]
    fn a_change_that_makes_no_sense_is_refused() {
        let now = Timestamp::UNIX_EPOCH;
        let refused = |cluster: &Lifecycle, change| {
            let error = patch(cluster, change, now).expect_err("it makes no sense");
            error.to_string()
        };
        let (running, paused) = (cluster(false, json!([])), cluster(true, json!([])));
        assert_eq!(refused(&running, Change::Resume), "cluster/xa is not paused");
        assert_eq!(refused(&paused, Change::Pause), "cluster/xa is already paused");
        assert!(refused(&running, Change::Retry).contains("nothing to retry"));
        let (patch, _) = patch(&failing(), Change::Retry, now).expect("a retry");
        assert_eq!(patch["metadata"]["annotations"][RETRY_ANNOTATION], now.to_string());
    }
}
