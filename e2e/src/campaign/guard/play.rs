//! Plays a history in a variant, in its own namespace and on its own nodes.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::{Either, join_all, select};
use jiff::Timestamp;
use judge::{Event, Witness};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::actors::{Scene, running};
use super::ended::{count_refused, ended};
use super::figures::Record;
use super::finish::finish;
use super::history::{History, Stimulus};
use super::matches::Matches;
use super::stage::{GUARDED_CLASS, Stage};
use super::variant::Variant;
use crate::case::{Case, evidence};
use crate::cluster::operator::Operator;
use crate::wait::eventually;

/// How long a workload may take to start.
const START: Duration = Duration::from_secs(120);
/// How long drains may last once nothing blocks them. kubectl tries again every five seconds.
const DRAINS: Duration = Duration::from_secs(60);

/// A history that was played.
#[derive(Debug)]
pub struct Played {
    /// The outcome.
    pub record: Record,
    /// One line for each match that was ended although its hook refused.
    pub ended: Vec<String>,
    history: History,
}

/// A history in progress.
struct Play<'a> {
    stage: &'a Stage,
    history: &'a History,
    variant: Variant,
    case: Case,
    nodes: Vec<String>,
}

/// Plays a history in a variant. If it does not pass, its files are kept in `folder`.
pub async fn play(
    stage: &Stage,
    history: &History,
    variant: Variant,
    folder: &Path,
) -> Result<Played> {
    play_until(stage, history, variant, folder, std::future::pending()).await
}

impl Played {
    /// Whether nothing went wrong.
    pub fn passed(&self) -> bool {
        self.record.passed()
    }
}

/// Like [`play()`], but also runs `meanwhile`. If `meanwhile` fails, the history is aborted and counts as failed.
pub async fn play_until(
    stage: &Stage,
    history: &History,
    variant: Variant,
    folder: &Path,
    meanwhile: impl Future<Output = Result<()>>,
) -> Result<Played> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let name = format!("guard-{}-{}", history.seed, variant.short());
    let mut case = Case::prepare(stage.plane(), &name, folder).await?;
    if history.kind.is_stateful_set() {
        case.use_stateful_set();
    }
    stage.include(&case.namespace).await?;
    let nodes = create_nodes(&case).await?;
    let play = Play { stage, history, variant, case, nodes };
    let played = play.run(meanwhile).await;
    if !played.as_ref().is_ok_and(Played::passed) {
        let text = match &played {
            Ok(played) => played.to_string(),
            Err(error) => format!("{history}{error:#}"),
        };
        evidence::collect(&play.case, &text).await;
    } else {
        std::fs::remove_dir_all(folder)?;
    }
    play.clean_up();
    played
}

impl Play<'_> {
    async fn run(&self, meanwhile: impl Future<Output = Result<()>>) -> Result<Played> {
        let (case, plane) = (&self.case, self.stage.plane());
        let witness = Witness::start(&plane.client(), &case.namespace).await?;
        let mut operator = self.start_operator().await?;
        let matches = Matches::begin(case);
        self.start_workload().await?;
        let finished = tokio::select! {
            finished = self.perform(&mut operator, &matches) => finished,
            failure = failure(meanwhile) => Err(failure),
        };
        let stopped = match &mut operator {
            Some(operator) => stop(operator).await,
            None => Ok(()),
        };
        let starts = operator.as_ref().map_or(&[][..], Operator::starts);
        let username = operator.as_ref();
        let username = username.map_or_else(String::new, Operator::username);
        let mut events = plane.audit.requests(&case.namespace)?;
        let refused = count_refused(&events, &username);
        events.retain(|event| event.is_write() || event.is_dry_deletion());
        let unanswered = witness.unanswered(&events).await?;
        events.extend(unanswered);
        let errors = finished.err().into_iter().chain(stopped.err());
        let mut failures: Vec<String> = errors.map(|error| format!("{error:#}")).collect();
        if self.variant == Variant::Guarded {
            failures.extend(violations(&events, starts, &username));
        }
        let ended = ended(&events, self.history, &matches, &username);
        Ok(Played {
            record: Record {
                seed: self.history.seed,
                variant: self.variant,
                build: String::new(),
                matches: ended.played,
                ended: ended.by_client,
                refused,
                kills: match self.variant.has_operator() {
                    true => self.kills().len() as u64,
                    false => 0,
                },
                failures,
            },
            ended: ended.lines,
            history: self.history.clone(),
        })
    }

    /// Starts the operator, if the variant has one.
    async fn start_operator(&self) -> Result<Option<Operator>> {
        if !self.variant.has_operator() {
            return Ok(None);
        }
        let (plane, case) = (self.stage.plane(), &self.case);
        let account = self.stage.namespace();
        let mut operator =
            Operator::with_account_of(plane, account, &case.namespace, case.folder()).await?;
        operator.disable_leader_election();
        operator.add_args(vec![format!("--guarded-priority-class={GUARDED_CLASS}")]);
        operator.start().await?;
        Ok(Some(operator))
    }

    /// Applies the workload, and waits until its pods run and, in the guarded variant, are guarded.
    async fn start_workload(&self) -> Result<()> {
        let (case, history) = (&self.case, self.history);
        let objects = self.variant.objects(history, case, &self.nodes);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        case.apply(list).await?;
        eventually("the pods run", START, async || {
            let pods = running(case).await?.len() as i64;
            ensure!(pods == history.replicas, "{pods} pods run");
            if self.variant == Variant::Guarded {
                let view = case.view().await?;
                let guarded = view.number("/status/protection/guarded");
                view.ensure(view.is_true("Guarded") && guarded == history.replicas)?;
            }
            Ok(())
        })
        .await
    }

    /// Lets all clients act, then ends all matches, and waits until everything that must end has ended.
    async fn perform(&self, operator: &mut Option<Operator>, matches: &Matches) -> Result<()> {
        let (case, history) = (&self.case, self.history);
        let scene = Scene { case, variant: self.variant, kind: history.kind, nodes: &self.nodes };
        let started = Instant::now();
        let clients = std::pin::pin!(self.run_clients(&scene, started));
        let matches_then_finish = std::pin::pin!(async {
            tokio::select! {
                failed = matches.play(case, history) => failed?,
                acted = self.kill(operator.as_mut(), started) => acted?,
            }
            matches.end_all(case);
            match self.variant {
                Variant::Guarded => finish(&scene, history.deleter()).await,
                _ => Ok(()),
            }
        });
        match select(clients, matches_then_finish).await {
            Either::Left((acted, matches_then_finish)) => {
                acted?;
                matches_then_finish.await
            }
            // The drain of a Deployment whose budget allows no eviction ends only at its timeout.
            Either::Right((finished, _)) if self.variant != Variant::Guarded => finished,
            Either::Right((finished, clients)) => {
                finished?;
                let ended = timeout(DRAINS, clients).await;
                ended.context("the drains did not end")?
            }
        }
    }

    /// Lets users and other clients act.
    async fn run_clients(&self, scene: &Scene<'_>, started: Instant) -> Result<()> {
        let acts = self.history.stimuli.iter().map(async |(at, stimulus)| {
            sleep_until(started + *at).await;
            match stimulus {
                Stimulus::Scale(replicas) => self.set("/spec/replicas", *replicas).await,
                Stimulus::Image(tag) => {
                    let path = "/spec/template/spec/containers/0/image";
                    self.set(path, format!("game:{tag}")).await
                }
                Stimulus::Kill(_) => Ok(()),
                Stimulus::Other(actor, number) => {
                    let acted = actor.act(scene, *number).await;
                    match self.variant {
                        Variant::Guarded => acted.with_context(|| actor.name()),
                        // A drain fails, for example, when the namespace of the pods is deleted.
                        _ => Ok(()),
                    }
                }
            }
        });
        join_all(acts).await.into_iter().collect()
    }

    async fn set(&self, path: &str, value: impl Into<Value>) -> Result<()> {
        let operation = json!([{"op": "add", "path": path, "value": value.into()}]);
        let workload = self.variant.path(&self.case);
        self.stage.plane().patch(&workload, &operation).await?;
        Ok(())
    }

    /// When the operator is killed, and for how long it is down.
    fn kills(&self) -> Vec<(Duration, Duration)> {
        let stimuli = self.history.stimuli.iter();
        let kill = |(at, stimulus): &(Duration, Stimulus)| match stimulus {
            Stimulus::Kill(downtime) => Some((*at, *downtime)),
            _ => None,
        };
        stimuli.filter_map(kill).collect()
    }

    /// Kills and restarts the operator as the history specifies. Returns at the end of the history.
    async fn kill(&self, operator: Option<&mut Operator>, started: Instant) -> Result<()> {
        if let Some(operator) = operator {
            for (at, downtime) in self.kills() {
                sleep_until(started + at).await;
                operator.kill().await?;
                sleep(downtime).await;
                operator.start().await?;
            }
        }
        sleep_until(started + self.history.length()).await;
        Ok(())
    }

    /// Deletes the namespace and the nodes in the background, while the next histories are played.
    fn clean_up(self) {
        let (plane, namespace) = (self.stage.plane(), self.case.namespace);
        plane.audit.forget(&namespace);
        let nodes = self.nodes;
        tokio::spawn(async move {
            let delete = ["delete", "namespace", &namespace, "--ignore-not-found"];
            let wait = ["--timeout=120s"];
            let deleted = plane.kubectl(&[&delete[..], &wait].concat(), "").await;
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let delete = [&["delete", "node"][..], &nodes].concat();
            if let Err(error) = deleted.and(plane.kubectl(&delete, "").await) {
                eprintln!("{error:#}");
            }
        });
    }
}

/// Waits until a future that runs during a history fails. If it succeeds, this never returns, so the history goes on.
async fn failure(meanwhile: impl Future<Output = Result<()>>) -> anyhow::Error {
    match meanwhile.await {
        Err(failure) => failure,
        Ok(()) => std::future::pending().await,
    }
}

/// Stops an operator. Fails if it had exited or panicked.
async fn stop(operator: &mut Operator) -> Result<()> {
    ensure!(operator.is_alive()?, "the operator exited on its own");
    operator.terminate().await?;
    let log = std::fs::read_to_string(operator.log())?;
    ensure!(!log.contains("panicked at"), "the operator panicked");
    Ok(())
}

/// The violations that the judge finds, and the permissions that the operator lacked.
fn violations(events: &[Event], starts: &[Timestamp], operator: &str) -> Vec<String> {
    let is_by_operator = |event: &&Event| event.username() == operator;
    let lacking = events.iter().filter(is_by_operator);
    let lacking = lacking.filter_map(Event::missing_permission);
    let found = judge::violations(events, starts, |user| user == operator);
    let found = found.iter().map(|violation| format!("violation: {violation}"));
    lacking.map(str::to_owned).chain(found).collect()
}

/// Creates three nodes with a taint that only the pods of this history tolerate.
async fn create_nodes(case: &Case) -> Result<Vec<String>> {
    let taint = json!({"key": "only", "value": case.namespace, "effect": "NoSchedule"});
    let names: Vec<String> =
        ["a", "b", "c"].map(|letter| format!("{}-{letter}", case.namespace)).into();
    let node = |(number, name): (usize, &String)| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"podCIDR": format!("127.{}.0.0/16", 104 + number), "taints": [&taint]},
        })
    };
    let nodes: Vec<Value> = names.iter().enumerate().map(node).collect();
    case.plane().apply(&nodes).await?;
    Ok(names)
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}as {}", self.history, self.record.variant)?;
        for line in &self.ended {
            writeln!(f, "match ended: {line}")?;
        }
        for failure in &self.record.failures {
            writeln!(f, "{failure}")?;
        }
        let seed = self.history.seed;
        write!(f, "to reproduce: make guard-campaign SEED={seed} COUNT=1")
    }
}
