//! Commands. Those that change a workload are in `steer`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{GUARDED_LABEL, WorkloadKind};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::sleep;

use crate::change::undo::revision_numbered;
use crate::cluster::Cluster;
use crate::complete::{self, Wanted};
use crate::doctor::doctor;
use crate::error::Error;
use crate::follow::{follow_status, follow_tree};
use crate::game::Game;
use crate::kind::{POD_KINDS, Reference, each_name, name_after, parse_kind};
use crate::lifecycle;
use crate::move_pods;
use crate::options::{
    Cli, ClusterOptions, Command, GetOptions, ListOutput, Output, Workload, limit,
};
use crate::page::sanitize;
use crate::print;
use crate::scene::{Scene, workload_of};
use crate::sidecar_set;
use crate::steer::steer;
use crate::style::Style;
use crate::verdict::{End, Verdict, judge};
use crate::view::{history, hooks, list, none_found, status, tree};
use crate::web;

/// Runs a command and returns its exit code.
pub async fn run(cli: Cli) -> Result<ExitCode, Error> {
    let target = &cli.cluster;
    match cli.command {
        Command::Get(options) => get(target, &options).await?,
        Command::Tree { workload, watch, all_pods, output } => {
            show_tree(target, &workload, watch, max_pods(all_pods, output), output).await?
        }
        Command::Status { workload, watch, timeout, output } => {
            let wait = watch.then_some(limit(timeout));
            let mut worst = 0;
            for name in each_name(&workload.words)? {
                let one = Workload { words: vec![name] };
                worst = worse(worst, status(target, &one, wait, output).await?);
            }
            return Ok(ExitCode::from(worst));
        }
        Command::Steer(command) => steer(target, command).await?,
        Command::History { workload, revision, output } => {
            show_history(target, &workload, revision, output).await?
        }
        Command::Hooks { workload, all_namespaces, failed, output } if workload.is_empty() => {
            show_all_hooks(target, all_namespaces, failed, output).await?
        }
        Command::Hooks { workload, failed, output, .. } => {
            show_hooks(target, &workload, failed, output).await?
        }
        Command::View(options) => web::view(target, &options).await?,
        Command::Doctor => return Ok(ExitCode::from(doctor(target).await?)),
        Command::Lint(options) => return lint_files(options).await,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kubectl-game", &mut script);
            stdout().write_all(&script)?;
        }
        Command::Complete { words } => complete_words(&words).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes text to stdout.
pub fn put(text: &str) -> Result<(), Error> {
    Ok(stdout().write_all(text.as_bytes())?)
}

async fn scene_of(target: &ClusterOptions, workload: &Workload) -> Result<Scene, Error> {
    let cluster = Cluster::connect(target).await?;
    let reference = reference(&cluster, &workload.words).await?;
    cluster.scene(&reference).await
}

/// The workload that words refer to: by its name, or by that of one of its pods.
async fn reference(cluster: &Cluster, words: &[String]) -> Result<Reference, Error> {
    let Some(pod) = name_after(words, &POD_KINDS).filter(|name| !name.is_empty()) else {
        return Reference::parse(words);
    };
    let found = cluster.pod(pod).await?;
    let owner = workload_of(&found).ok_or_else(|| {
        Error::Refused(format!(
            "pod/{pod} is not controlled by a GameDeployment or GameStatefulSet"
        ))
    })?;
    Ok(Reference { kind: WorkloadKind::parse(&owner.kind), name: owner.name.clone() })
}

/// The exit code of several workloads: one that is stopped counts more than one that is in progress.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: u8| [0, 3, 2, 1].iter().position(|it| *it == code);
    if rank(one) >= rank(other) { one } else { other }
}

async fn get(target: &ClusterOptions, options: &GetOptions) -> Result<(), Error> {
    let words = &options.workloads;
    if sidecar_set::are_requested(words) {
        let output = options.output.and_then(ListOutput::of_objects);
        return sidecar_set::get(target, words, options.selector.clone(), output).await;
    }
    let cluster = Cluster::connect(target).await?;
    if let Some(output) = options.output.and_then(ListOutput::of_objects) {
        let workloads = workloads_to_get(&cluster, options).await?;
        let is_one = matches!(each_name(words)?[..], [_]) && !is_kind_alone(words);
        let objects: Vec<&Value> = workloads.iter().map(|game| &game.object).collect();
        return put(&match (is_one, &objects[..]) {
            (true, [object]) => print::object(object, output)?,
            _ => print::list(&objects, output)?,
        });
    }
    let mut last = None;
    loop {
        let (text, note) = table_of_workloads(&cluster, options).await?;
        if last.as_ref() != Some(&text) {
            if text.is_empty() {
                let namespace = (!options.all_namespaces).then_some(cluster.namespace.as_str());
                eprintln!("{}", none_found(namespace));
            }
            put(&text)?;
            if let Some(note) = note {
                eprintln!("note: {}", sanitize(&note));
            }
            stdout().flush()?;
            last = Some(text);
        }
        if !options.watch {
            return Ok(());
        }
        sleep(GET_INTERVAL).await;
    }
}

/// How often `get --watch` lists the workloads.
const GET_INTERVAL: Duration = Duration::from_secs(2);

fn is_kind_alone(words: &[String]) -> bool {
    matches!(words, [word] if parse_kind(word).is_ok())
}

/// The table, without ages if it is watched, and a note about what is missing in it.
async fn table_of_workloads(
    cluster: &Cluster,
    options: &GetOptions,
) -> Result<(String, Option<String>), Error> {
    let workloads = workloads_to_get(cluster, options).await?;
    if workloads.is_empty() {
        return Ok((String::new(), None));
    }
    let (mut scenes, refusal) = cluster.with_runs(workloads, options.all_namespaces).await?;
    let now = Timestamp::now();
    if options.problems {
        scenes.retain(|scene| judge(scene, now).end != End::Done);
        if scenes.is_empty() {
            return Ok(("all workloads are complete\n".to_owned(), None));
        }
    }
    let columns = list::Columns {
        namespace: options.all_namespaces,
        why: options.problems || options.output == Some(ListOutput::Wide),
        age: !options.watch,
        headings: !options.no_headers,
    };
    let note = refusal
        .map(|refusal| format!("a workload that waits for a hook is shown as Updating: {refusal}"));
    Ok((list::list(&scenes, columns, Style::of_stdout(), now), note))
}

async fn workloads_to_get(cluster: &Cluster, options: &GetOptions) -> Result<Vec<Game>, Error> {
    let words = &options.workloads[..];
    let all_namespaces = options.all_namespaces;
    let params = ListParams { label_selector: options.selector.clone(), ..ListParams::default() };
    match words {
        [] => cluster.list_selected(&WorkloadKind::ALL, all_namespaces, &params).await,
        [word] if parse_kind(word).is_ok() => {
            let kind = parse_kind(word)?;
            cluster.list_selected(&[kind], all_namespaces, &params).await
        }
        _ if params.label_selector.is_some() => {
            let why = "a name and a selector are mutually exclusive: remove one of them";
            Err(Error::Usage(why.to_owned()))
        }
        words if all_namespaces => {
            let words = words.join(" ");
            let why = format!(
                "cannot look up {words:?} in all namespaces: set its namespace with -n, or omit the name"
            );
            Err(Error::Usage(why))
        }
        words => {
            let mut found = Vec::new();
            for name in each_name(words)? {
                found.push(cluster.find(&Reference::parse(&[name])?).await?);
            }
            Ok(found)
        }
    }
}

/// How many pods a tree shows. Programs get all of them.
fn max_pods(all_pods: bool, output: Option<Output>) -> usize {
    match all_pods || output.is_some() {
        true => usize::MAX,
        false => tree::MAX_PODS,
    }
}

async fn show_tree(
    target: &ClusterOptions,
    workload: &Workload,
    watch: bool,
    max_pods: usize,
    output: Option<Output>,
) -> Result<(), Error> {
    let cluster_or_set =
        lifecycle::name_in(&workload.words).or_else(|| sidecar_set::name_in(&workload.words));
    if let (Some(_), Some(_)) = (cluster_or_set, output) {
        return Err(Error::Usage("-o is only for trees of workloads".to_owned()));
    }
    if let Some(name) = lifecycle::name_in(&workload.words) {
        return lifecycle::show_tree(target, name, watch).await;
    }
    let style = Style::of_stdout();
    if let Some(name) = sidecar_set::name_in(&workload.words) {
        return sidecar_set::show_tree(target, name, watch, max_pods).await;
    }
    if watch {
        let cluster = Cluster::connect(target).await?;
        let reference = reference(&cluster, &workload.words).await?;
        return follow_tree(&cluster, &reference, max_pods, style).await;
    }
    let scene = scene_of(target, workload).await?;
    put(&match output {
        Some(Output::Name) => scene.game.full_name() + "\n",
        Some(output) => print::object(&tree::data(&scene, max_pods, Timestamp::now()), output)?,
        None => tree::tree(&scene, max_pods, style, Timestamp::now()),
    })
}

async fn status(
    target: &ClusterOptions,
    workload: &Workload,
    wait: Option<Option<Duration>>,
    output: Option<Output>,
) -> Result<u8, Error> {
    if let Some(name) = lifecycle::name_in(&workload.words) {
        return lifecycle::status(target, name, wait, output).await;
    }
    if let Some(name) = sidecar_set::name_in(&workload.words) {
        return sidecar_set::status(target, name, wait, output).await;
    }
    let style = Style::of_stdout();
    let (scene, verdict) = match wait {
        None => {
            let scene = scene_of(target, workload).await?;
            let verdict = judge(&scene, Timestamp::now());
            (scene, verdict)
        }
        Some(limit) => {
            let reference = match name_after(&workload.words, &POD_KINDS) {
                Some(_) => reference(&Cluster::connect(target).await?, &workload.words).await?,
                None => Reference::parse(&workload.words)?,
            };
            let mut last = String::new();
            let report = |scene: &Scene, verdict: &Verdict| {
                let line = status::sentence(&scene.game.short_name(), verdict);
                if output.is_none() && line != last {
                    put(&line)?;
                }
                last = line;
                Ok(())
            };
            follow_status(target, &reference, limit, report).await?
        }
    };
    put(&match output {
        None => status::status(&scene.game, &verdict, style),
        Some(Output::Name) => scene.game.full_name() + "\n",
        Some(output) => print::object(&status::data(&scene.game, &verdict), output)?,
    })?;
    if wait.is_some() && verdict.end == End::InProgress {
        eprintln!("timed out waiting: the rollout continues");
    }
    Ok(verdict.exit_code())
}

async fn show_history(
    target: &ClusterOptions,
    workload: &Workload,
    revision: Option<i64>,
    output: Option<Output>,
) -> Result<(), Error> {
    if let Some(name) = sidecar_set::name_in(&workload.words) {
        return sidecar_set::show_history(target, name, revision, output).await;
    }
    let scene = scene_of(target, workload).await?;
    if let Some(number) = revision {
        return put(&history::details(&scene.game, revision_numbered(&scene, number)?)?);
    }
    put(&match output {
        Some(output) => print::list(&scene.revisions, output)?,
        None => history::history(&scene, Style::of_stdout(), Timestamp::now()),
    })
}

async fn show_hooks(
    target: &ClusterOptions,
    words: &[String],
    failed: bool,
    output: Option<Output>,
) -> Result<(), Error> {
    let reference = Reference::parse(words)?;
    let mut scene = Cluster::connect(target).await?.scene(&reference).await?;
    scene.runs.retain(|run| !failed || run.phase().has_failed());
    match output {
        Some(output) => put(&print::list(&scene.runs, output)?),
        None if scene.runs.is_empty() => {
            let which = if failed { "failed " } else { "" };
            eprintln!("{} has no {which}HookRuns", scene.game.short_name());
            Ok(())
        }
        None => put(&hooks::hooks(&scene, Style::of_stdout(), Timestamp::now())),
    }
}

async fn show_all_hooks(
    target: &ClusterOptions,
    all_namespaces: bool,
    failed: bool,
    output: Option<Output>,
) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let (mut scenes, mut others) = cluster.runs(all_namespaces).await?;
    for runs in scenes.iter_mut().map(|scene| &mut scene.runs) {
        runs.retain(|run| !failed || run.phase().has_failed());
    }
    others.retain(|run| !failed || run.phase().has_failed());
    let owned = scenes.iter().flat_map(|scene| &scene.runs);
    let runs: Vec<&HookRun> = owned.chain(&others).collect();
    let (style, now) = (Style::of_stdout(), Timestamp::now());
    match output {
        Some(output) => put(&print::list(&runs, output)?),
        None if runs.is_empty() => {
            let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());
            eprintln!("{}", none_found(namespace));
            Ok(())
        }
        None => put(&hooks::all(&scenes, &others, all_namespaces, style, now)),
    }
}

async fn lint_files(options: lint_command::Options) -> Result<ExitCode, Error> {
    // The linter blocks until its own thread has ended.
    let linted = tokio::task::spawn_blocking(move || lint_command::run(&options)).await;
    let code = linted.map_err(|error| Error::Unexpected(error.to_string()))?;
    Ok(ExitCode::from(code))
}

/// Prints candidates for kubectl's completion. Errors are ignored: they would disturb the user's command line.
async fn complete_words(words: &[String]) -> Result<(), Error> {
    let wanted = complete::wanted(&Cli::command(), words);
    let directive = wanted.directive();
    let candidates = match wanted {
        Wanted::Words(words) => words,
        Wanted::File => Vec::new(),
        wanted => names_like(&wanted, words).await.unwrap_or_default(),
    };
    for candidate in candidates {
        put(&format!("{candidate}\n"))?;
    }
    put(&format!("{directive}\n"))
}

/// The names in the cluster that begin with the last word. Those that the user may not list are left out.
async fn names_like(wanted: &Wanted, words: &[String]) -> Result<Vec<String>, Error> {
    let last = words.last().map_or("", String::as_str);
    let cluster = Cluster::connect(&complete::cluster_options(words)).await?;
    let workloads = async || workloads_like(&cluster, last).await.unwrap_or_default();
    Ok(match wanted {
        Wanted::Words(_) | Wanted::File => Vec::new(),
        Wanted::PodOrNode => {
            let pods = cluster.select::<Pod>("").await.unwrap_or_default();
            move_pods::completions(last, pods)
        }
        Wanted::GuardedPodOrWorkload => {
            let mut names = guarded_pods_like(&cluster, last).await.unwrap_or_default();
            names.extend(workloads().await);
            names
        }
        Wanted::Workload => workloads().await,
        Wanted::WorkloadOrSet => {
            let mut names = workloads().await;
            let sets = sidecar_set::list_all(&cluster, None).await.unwrap_or_default();
            names.extend(sidecar_set::completions(last, sets.iter().map(|set| set.name())));
            names
        }
    })
}

async fn workloads_like(cluster: &Cluster, last: &str) -> Result<Vec<String>, Error> {
    let workloads = cluster.list(false).await?;
    let names = workloads.iter().flat_map(|game| [game.short_name(), game.name.clone()]);
    Ok(names.filter(|name| name.starts_with(last)).collect())
}

async fn guarded_pods_like(cluster: &Cluster, last: &str) -> Result<Vec<String>, Error> {
    let pods = cluster.select::<Pod>(GUARDED_LABEL).await?;
    let names = pods.iter().map(|pod| format!("pod/{}", pod.name_any()));
    Ok(names.filter(|name| name.starts_with(last)).collect())
}
