//! Random histories in clusters that are too large to explore completely.
//! `PROPTEST_RNG_SEED=7 PROPTEST_CASES=10000 cargo test -p model random` runs other histories, and more of them.

use std::cell::Cell;
use std::io::Write as _;

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{ContainerOrder, PodManagementPolicy, UpdateStrategyType};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::describe::describe;
use super::explore::{Settled, settles};
use super::fair::Unsettled;
use super::model::{Model, Move, Violation};
use super::scope::{Amount, Lags, Scope, Step, User};
use super::sidecars::{SetChange, SidecarScope};
use super::start::start;
use super::state::{Node, Remaining, State};

/// Each history has fewer moves than this.
const MOVE_LIMIT: usize = 250;

/// Runs random histories. At the end of each, the cluster must settle.
fn check(name: &str, scope: Scope) {
    let model = Model::new(scope);
    let start = start(&model);
    let moves = Cell::new(0);
    let config = Config { failure_persistence: None, ..Config::default() };
    let histories = config.cases;
    let history = vec(any::<u16>(), 1..MOVE_LIMIT);
    let result = TestRunner::new(config).run(&history, |choices| {
        let end = follow(&model, &start, &choices).map_err(|(moves, violation)| {
            let trace = describe_history(&model, &start, &choices[..moves]);
            TestCaseError::fail(format!("{}: {}{trace}", violation.rule, violation.why))
        })?;
        moves.set(moves.get() + choices.len());
        settles(&model, &end, &mut Settled::default()).map_err(|unsettled| {
            let Unsettled { violation, moves, last } = *unsettled;
            let trace = describe_history(&model, &start, &choices);
            let (rule, why, settling) = (violation.rule, violation.why, moves.join("\n"));
            let text = format!(
                "{rule}: {why}{trace}\n... and then, while the cluster settles:\n{settling}"
            );
            TestCaseError::fail(format!("{text}\n{last}"))
        })?;
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{name}: {error}"));
    let moves = moves.get();
    let line =
        format!("model: random, {name}: {histories} histories with {moves} moves in total\n");
    std::io::stderr().write_all(line.as_bytes()).expect("a terminal");
}

/// The move that a number selects. Changes by users, crashes and the like are rare, because a history would otherwise
/// use them up before the first rollout starts.
fn pick(model: &Model, state: &State, choice: u16) -> Option<Move> {
    let is_rare = |next_move: &Move| match next_move {
        Move::User(..) | Move::Crash | Move::Tick | Move::HookAhead(_) => true,
        Move::Kubelet(_, change, _) => change.is_breakage(),
        _ => false,
    };
    let (rare, common): (Vec<Move>, Vec<Move>) = model.moves(state).into_iter().partition(is_rare);
    let (first, second) = if choice.is_multiple_of(8) { (rare, common) } else { (common, rare) };
    let mut moves = if first.is_empty() { second } else { first };
    let index = usize::from(choice / 8) % moves.len().max(1);
    (index < moves.len()).then(|| moves.swap_remove(index))
}

/// The state at the end of a history.
fn follow(model: &Model, start: &State, choices: &[u16]) -> Result<State, (usize, Violation)> {
    let mut state = start.clone();
    for (number, choice) in choices.iter().enumerate() {
        let Some(next_move) = pick(model, &state, *choice) else {
            break;
        };
        let next = model.step(&state, &next_move);
        state = next.map_err(|violation| (number + 1, violation))?;
    }
    Ok(state)
}

/// The moves of a history as text.
fn describe_history(model: &Model, start: &State, choices: &[u16]) -> String {
    let mut state = start.clone();
    let mut trace = String::new();
    for choice in choices {
        let Some(next_move) = pick(model, &state, *choice) else {
            break;
        };
        trace.push_str(&format!("\n{}", describe(model, &state, &next_move)));
        match model.step(&state, &next_move) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    trace
}

/// Five pods, three templates and many changes by users.
fn large() -> Scope {
    let point = HookPoint::PreDelete;
    Scope {
        replicas: 5,
        templates: 3,
        max_unavailable: Amount::Percent(40),
        pre_delete: true,
        user: vec![
            User::Scale(3),
            User::Scale(5),
            User::Scale(6),
            User::Template(0),
            User::Template(1),
            User::Template(2),
            User::Pause,
            User::Resume,
            User::Retry(point),
            User::Hook(1),
            User::Partition(2),
            User::Partition(0),
        ],
        ticks: vec![1, 7, 2, 1, 7, 1],
        late_sidecars: true,
        container_crashes: true,
        ahead: 7,
        remaining: Remaining { user: 12, crashes: 6, breaks: 0, failures: 4, ticks: 6 },
        lags: Lags { workload: true, pods: true, runs: true, revisions: true },
        ..Scope::default()
    }
}

#[test]
fn rolling_histories() {
    check("rolling", large());
}

#[test]
fn surging_histories_with_pods_that_break() {
    let scope = large();
    let remaining = Remaining { breaks: 4, ..scope.remaining.clone() };
    let surge = Scope { max_surge: Amount::Number(2), remaining, ..scope };
    check("surging, with pods that break", surge);
}

#[test]
fn canary_histories() {
    let steps = [
        vec![
            Step::Partition(Amount::Percent(60)),
            Step::Pause(Some(2)),
            Step::Hook,
            Step::Partition(Amount::Number(1)),
            Step::Pause(None),
        ],
        vec![Step::Pause(None), Step::Partition(Amount::Number(2)), Step::Hook],
    ];
    let mut scope = Scope { steps: steps.to_vec(), ..large() };
    scope.user.extend([User::Steps(0), User::Steps(1), User::Apply, User::Promote]);
    check("canary", scope);
}

#[test]
fn in_place_histories() {
    let mut scope = Scope {
        strategy: UpdateStrategyType::InplaceUpdate,
        pre_inplace: true,
        post_inplace: true,
        grace: 1,
        ..large()
    };
    let points = [HookPoint::PreInplace, HookPoint::PostInplace];
    scope.user.extend(points.map(User::Retry));
    check("in place", scope.clone());
    let in_order = Scope { containers: 2, order: ContainerOrder::OrderedReady, ..scope };
    check("in place, in order", in_order);
}

#[test]
fn histories_with_sidecars() {
    let set = SidecarScope {
        max_unavailable: 2,
        revisions: 3,
        set_lags: true,
        pods_lag: true,
        ..SidecarScope::default()
    };
    let changes = [
        SetChange::Image(0),
        SetChange::Image(1),
        SetChange::Image(2),
        SetChange::Pause,
        SetChange::Resume,
        SetChange::Partition(2),
        SetChange::Partition(0),
        SetChange::Delete,
        SetChange::Create,
    ];
    for (name, strategy) in [
        ("sidecars", UpdateStrategyType::RollingUpdate),
        ("sidecars, in place", UpdateStrategyType::InplaceUpdate),
    ] {
        let mut scope = Scope {
            strategy,
            pre_inplace: true,
            post_inplace: true,
            grace: 1,
            sidecars: Some(set),
            ..large()
        };
        scope.user.extend(changes.map(User::Sidecars));
        check(name, scope);
    }
}

#[test]
fn histories_with_reserved_ordinals() {
    for (name, policy) in [
        ("reserving, ordered", PodManagementPolicy::OrderedReady),
        ("reserving, parallel", PodManagementPolicy::Parallel),
    ] {
        let mut scope = Scope { stateful_set: Some(policy), ..large() };
        let reserved = [0, 2, 5].into_iter();
        let changes = reserved.flat_map(|it| [User::Reserve(it), User::Unreserve(it)]);
        scope.user.extend(changes);
        check(name, scope);
    }
}

#[test]
fn histories_of_guarded_pods() {
    let nodes =
        [Node::Fine, Node::Cordoned, Node::Going, Node::Tolerated, Node::Silent, Node::Lost];
    let pods = (0..3).flat_map(|pod| {
        [
            User::Evict(pod),
            User::Delete(pod),
            User::Move(pod),
            User::Release(pod),
            User::Mark(pod, true),
            User::Mark(pod, false),
            User::Since(pod, Some(0)),
            User::Since(pod, None),
        ]
    });
    let large = large();
    let user = large.user.iter().copied().chain(pods).chain([User::Unhook]);
    let scope = Scope {
        protected: true,
        moves_off_nodes: true,
        pods_on_node: 2,
        user: user.chain(nodes.map(User::Node)).collect(),
        remaining: Remaining { user: 16, ..large.remaining },
        ..large
    };
    check("guarded", scope);
}
