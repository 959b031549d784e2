//! Random histories, longer and in larger worlds than can be walked: what is not proved there is at
//! least looked for. `PROPTEST_RNG_SEED=7 PROPTEST_CASES=10000 cargo test -p model random` looks
//! elsewhere, and longer.

use std::cell::Cell;
use std::io::Write as _;

use gamekeeper_core::api::UpdateStrategyType;
use gamekeeper_core::api::names::HookPoint;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::explore::{Settled, rest};
use super::fair::Unrest;
use super::model::{Broken, Model, Move};
use super::scope::{Amount, Lags, Scope, Step, User};
use super::start::settled;
use super::state::{Left, State};
use super::telling::tell;

/// Moves of the longest.
const MOVES: usize = 250;

/// Lets a world live through random histories; each ends with the world standing still.
fn live(name: &str, scope: Scope) {
    let model = Model::new(scope);
    let start = settled(&model);
    let moves = Cell::new(0);
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let histories = config.cases;
    let history = vec(any::<u16>(), 1..MOVES);
    let lived = TestRunner::new(config).run(&history, |choices| {
        let end = follow(&model, &start, &choices).map_err(|(moves, broken)| {
            let story = told(&model, &start, &choices[..moves]);
            TestCaseError::fail(format!("{}: {}{story}", broken.rule, broken.why))
        })?;
        moves.set(moves.get() + choices.len());
        rest(&model, &end, &mut Settled::default()).map_err(|unrest| {
            let Unrest {
                broken,
                moves,
                last,
            } = *unrest;
            let story = told(&model, &start, &choices);
            let (rule, why, then) = (broken.rule, broken.why, moves.join("\n"));
            let words = format!("{rule}: {why}{story}\n... and from here on, fairly:\n{then}");
            TestCaseError::fail(format!("{words}\n{last}"))
        })?;
        Ok(())
    });
    lived.unwrap_or_else(|broken| panic!("{name}: {broken}"));
    let moves = moves.get();
    let line = format!("model: random, {name}: {histories} histories of {moves} moves\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("a terminal");
}

/// The move that a choice stands for. What is not the daily round comes seldom, or a history would
/// use it all up before the first rollout is under way.
fn pick(model: &Model, state: &State, choice: u16) -> Option<Move> {
    let is_seldom = |what: &Move| match what {
        Move::User(..) | Move::Crash | Move::Tick | Move::HookAhead(_) => true,
        Move::Kubelet(_, what, _) => what.is_breakage(),
        _ => false,
    };
    let (seldom, daily): (Vec<Move>, Vec<Move>) =
        model.moves(state).into_iter().partition(is_seldom);
    let (often, otherwise) = if choice.is_multiple_of(8) {
        (seldom, daily)
    } else {
        (daily, seldom)
    };
    let mut moves = if often.is_empty() { otherwise } else { often };
    let place = usize::from(choice / 8) % moves.len().max(1);
    (place < moves.len()).then(|| moves.swap_remove(place))
}

/// Where a history leads.
fn follow(model: &Model, start: &State, choices: &[u16]) -> Result<State, (usize, Broken)> {
    let mut state = start.clone();
    for (number, choice) in choices.iter().enumerate() {
        let Some(what) = pick(model, &state, *choice) else {
            break;
        };
        let next = model.step(&state, &what);
        state = next.map_err(|broken| (number + 1, broken))?;
    }
    Ok(state)
}

/// A history in words.
fn told(model: &Model, start: &State, choices: &[u16]) -> String {
    let mut state = start.clone();
    let mut story = String::new();
    for choice in choices {
        let Some(what) = pick(model, &state, *choice) else {
            break;
        };
        story.push_str(&format!("\n{}", tell(model, &state, &what)));
        match model.step(&state, &what) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    story
}

/// Five pods, three templates, and users who do whatever users do.
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
        crashes: true,
        ahead: 7,
        left: Left {
            user: 12,
            crashes: 6,
            breaks: 0,
            failures: 4,
            ticks: 6,
        },
        lags: Lags {
            workload: true,
            pods: true,
            runs: true,
            revisions: true,
        },
        ..Scope::default()
    }
}

#[test]
fn rolling_histories() {
    live("rolling", large());
}

#[test]
fn surging_histories_with_pods_that_break() {
    let scope = large();
    let left = Left {
        breaks: 4,
        ..scope.left.clone()
    };
    let surge = Scope {
        max_surge: Amount::Number(2),
        left,
        ..scope
    };
    live("surging, with pods that break", surge);
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
        vec![
            Step::Pause(None),
            Step::Partition(Amount::Number(2)),
            Step::Hook,
        ],
    ];
    let mut scope = Scope {
        steps: steps.to_vec(),
        ..large()
    };
    scope
        .user
        .extend([User::Steps(0), User::Steps(1), User::Apply, User::Promote]);
    live("canary", scope);
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
    live("in place", scope);
}
