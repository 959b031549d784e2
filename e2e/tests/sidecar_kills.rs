//! A sidecar update continues after the operator is killed between two of its writes: no hook is run twice, no
//! container is restarted twice, and no more pods are unavailable than allowed.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::faults::request::Verb;
use e2e::faults::{Fault, FaultProxy, Frequency, Requests, Script};
use e2e::workload::SET;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::{Pod, View};
use judge::object::{is_true, label, restarts, text};
use serde_json::{Value, json};

use crate::sidecar_updates::{count, image, set_image, uids};
use crate::sidecars::{log, mark, name, remove, set, until_shown};

/// The number of pods. Both the workload and the set allow one to be unavailable.
const PODS: i64 = 2;
const GRACE: &str = "/spec/updateStrategy/inPlaceUpdateStrategy/gracePeriodSeconds";
const GRACE_SECONDS: i64 = 5;

/// A point between two writes of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// The set's token is written, and the workload's first write has not been made.
    Token,
    /// The gate is closed, and the grace period is not over.
    Gate,
    /// The pod's spec has the new image, and the container does not run it yet.
    Patch,
}

impl Point {
    /// Whether the update of a pod to an image has reached this point.
    fn is_reached(self, case: &Case, pod: &Value, new: &str) -> bool {
        let is_allotted = mark(pod, &name(case)).is_some_and(|it| it["to"].is_string());
        let is_open = is_true(pod, "InPlaceUpdateReady");
        let is_patched = image(pod, "log") == new;
        match self {
            Point::Token => is_allotted && is_open && !is_patched,
            Point::Gate => is_allotted && !is_open && !is_patched,
            Point::Patch => !is_allotted && !is_open && is_patched,
        }
    }

    /// Whether exactly one pod is at this point, and the others are not affected.
    fn is_current(self, case: &Case, view: &View, new: &str) -> bool {
        let reached = |pod: &&Pod| self.is_reached(case, &pod.0, new);
        let has_hook_run = !view.runs.is_empty();
        view.pods.iter().filter(reached).count() == 1
            && count(view, new) == usize::from(self == Point::Patch)
            && (self != Point::Token || !has_hook_run)
    }
}

#[e2e::test]
async fn a_sidecar_update_continues_after_the_operator_is_killed(case: &mut Case) -> Result<()> {
    let points = [Point::Token, Point::Gate, Point::Patch];
    kill_at(case, Game::in_place(PODS), &points).await
}

#[e2e::test]
async fn a_sidecar_update_in_a_game_stateful_set_continues_after_a_kill(
    case: &mut Case,
) -> Result<()> {
    case.use_stateful_set();
    let game = Game::parallel(PODS).updated_by("InplaceUpdate");
    kill_at(case, game, &[Point::Gate]).await
}

/// Updates a sidecar once for each of these points, and kills the operator there.
async fn kill_at(case: &mut Case, game: Game, points: &[Point]) -> Result<()> {
    let proxy = case.plane().fault_proxy().await?;
    case.start_witness().await?;
    case.operator.terminate().await?;
    case.operator.use_proxy(&proxy)?;
    case.operator.disable_leader_election();
    case.operator.start().await?;

    let mut set = set(case, log());
    if case.workload().ends_with(SET) {
        set["spec"]["selector"]["matchLabels"]["app"] = json!(SET);
    }
    case.apply(set).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let game = game.pre_inplace("test").max_unavailable(1).set(GRACE, GRACE_SECONDS);
    case.apply(game).await?;
    let before = case.until_settled(PODS).await?;
    until_shown(case, [PODS, PODS, PODS, 0]).await?;
    for (index, point) in points.iter().enumerate() {
        let updates = index + 1;
        // The operator is killed during the pull, even if this test is slow.
        let pull = if *point == Point::Patch { 15 } else { 5 };
        let new = format!("log:1.{updates}-slow{pull}");
        update(case, &proxy, *point, &new, updates)
            .await
            .with_context(|| format!("killed at {point:?}"))?;
    }
    let after = case.view().await?;
    after.ensure(uids(&after) == uids(&before))?;
    let runs = created_runs(case)?;
    let expected = points.len() * after.pods.len();
    let is_each_created_once = runs.len() == expected && runs.values().all(|times| *times == 1);
    ensure!(is_each_created_once, "{expected} hooks are due: {runs:#?}");
    let calls = case.hooks.calls("/").len();
    ensure!(calls == expected, "{calls} calls for {expected} hooks");
    remove(case).await
}

/// Updates the sidecar, and kills the operator when the first pod reaches `point`. Then the update must continue.
async fn update(
    case: &mut Case,
    proxy: &FaultProxy,
    point: Point,
    new: &str,
    updates: usize,
) -> Result<()> {
    if point == Point::Token {
        let hook = Requests::To(Verb::Create, "hookruns");
        proxy.play(Script::default().with(hook, Fault::Unavailable, Frequency::Always));
    }
    if point == Point::Gate {
        // The operator is killed during the grace period, even if this test is slow.
        case.replace(GRACE, 60).await?;
    }
    set_image(case, new).await?;
    case.until("the point is reached", |view| point.is_current(case, view, new)).await?;
    case.kill_operator().await?;
    let view = case.view().await?;
    view.ensure(point.is_current(case, &view, new))?;
    if point == Point::Patch {
        // The operator must also notice what happens while it is not running.
        case.until("the sidecar is restarted", |view| {
            let mut pods = view.pods.iter();
            pods.any(|pod| restarts(&pod.0) == updates as i64)
        })
        .await?;
    }
    if point == Point::Gate {
        case.replace(GRACE, GRACE_SECONDS).await?;
    }
    proxy.heal();
    case.operator.start().await?;

    let unavailable = Cell::new(0);
    case.until("all sidecars are updated, each once", |view| {
        let pods = view.pods.iter();
        let now = pods.filter(|pod| !pod.is_ready()).count();
        unavailable.set(unavailable.get().max(now));
        let mut pods = view.pods.iter();
        let is_done = pods.all(|pod| image(&pod.0, "log") == new && pod.restarts() > 0);
        is_done && view.is_settled(PODS)
    })
    .await?;
    let most = unavailable.get();
    ensure!(most <= 1, "{most} pods were unavailable at a time");
    until_shown(case, [PODS, PODS, PODS, 0]).await?;
    let after = case.view().await?;
    let mut pods = after.pods.iter();
    after.ensure(pods.all(|pod| pod.restarts() == updates as i64))
}

/// How many HookRuns were created for each pod and each target revision.
fn created_runs(case: &Case) -> Result<BTreeMap<(String, String), usize>> {
    let mut runs = BTreeMap::new();
    let events = case.events()?.into_iter();
    let created = events
        .filter(|it| it.verb == "create" && it.resource() == "hookruns" && it.succeeded())
        .filter_map(|it| it.response_object);
    for run in created {
        let instance = label(&run, "InstanceID").unwrap_or_default().to_owned();
        let target = "/metadata/annotations/gamekeeper.tkex.tencent.com~1target-revision";
        let key = (instance, text(&run, target).to_owned());
        *runs.entry(key).or_default() += 1;
    }
    Ok(runs)
}
