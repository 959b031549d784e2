//! What a pod's PreDelete hook answers to a removal, as a table.

use serde_json::json;

use super::*;
use crate::api::HookPhase::{Error, Failed, Inconclusive, Pending, Running, Successful};
use crate::observed::RevisionName;
use crate::workload::hooks::Target;
use crate::workload::spec::Workload;
use crate::workload::tests::story::{Story, story};

/// What becomes of the pod's run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Nothing,
    Keep,
    Await,
    Refused,
    Start,
}

impl Then {
    fn of(need: &RunNeed) -> Self {
        match need {
            RunNeed::Nothing => Self::Nothing,
            RunNeed::Keep(_) => Self::Keep,
            RunNeed::Await(_) => Self::Await,
            RunNeed::Refused(..) => Self::Refused,
            RunNeed::Start(_) => Self::Start,
        }
    }
}

/// A pod that is to be removed, with its run for that: its phase, and how many seconds ago it ended.
fn with_run(run: Option<(HookPhase, i64)>, hook: bool, is_marked: bool) -> Story {
    let hook =
        json!({"preDeleteUpdateStrategy": {"hook": hook.then(|| json!({"templateName": "test"}))}});
    let mut story = story(1, hook);
    story.settle();
    if let Some((phase, ago)) = run {
        story.user(json!({"replicas": 0})).settle();
        if phase.is_completed() {
            story.hooks_end("", phase);
        }
        story.wait(ago).user(json!({"replicas": 1}));
    }
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| pod.marked_deleting = is_marked);
    story
}

/// The answer, what becomes of the run, and whether the pod has the mark of a pod that waits.
fn answered(story: &Story, intent: &Intent) -> (HookAnswer, Then, bool) {
    let workload = Workload::of_game_deployment(&story.object).expect("a valid workload");
    let hooks = Hooks::new(&workload, &story.world);
    let (answer, need) = hooks.answer(story.pods()[0], intent);
    (answer, Then::of(&need.run), need.mark.is_some())
}

#[test]
fn what_a_hook_answers_to_a_removal() {
    use HookAnswer::{Allowed, Held};
    use Then::{Await, Keep, Nothing, Refused, Start};
    // Per row: the run, whether the removal is possible now, and what follows.
    let rows = [
        (None, true, (Held, Start, true)),
        (None, false, (Held, Nothing, false)),
        (Some((Pending, 0)), true, (Held, Await, true)),
        (Some((Running, 600)), true, (Held, Await, true)),
        (Some((Running, 0)), false, (Held, Await, true)),
        (Some((Successful, 60)), true, (Allowed, Keep, true)),
        (Some((Successful, 60)), false, (Allowed, Keep, true)),
        // Players may have joined since. It runs again once the removal is possible.
        (Some((Successful, 61)), true, (Held, Nothing, false)),
        (Some((Successful, 61)), false, (Held, Keep, true)),
        (Some((Failed, 0)), true, (Held, Refused, true)),
        (Some((Error, 600)), true, (Held, Refused, true)),
        (Some((Inconclusive, 600)), false, (Held, Refused, true)),
    ];
    for (run, possible, expected) in rows {
        let story = with_run(run, true, false);
        let intent = Intent { possible, ..Intent::removal(story.world.now) };
        assert_eq!(answered(&story, &intent), expected, "{run:?}, possible: {possible}");
    }
}

#[test]
fn a_pod_that_is_marked_stays_so_while_its_hook_is_run_again() {
    for (possible, expected) in [(true, true), (false, false)] {
        let story = with_run(None, true, true);
        let intent = Intent { possible, ..Intent::removal(story.world.now) };
        assert_eq!(answered(&story, &intent).2, expected);
    }
    let story = with_run(Some((Successful, 61)), true, true);
    let again = answered(&story, &Intent::removal(story.world.now));
    assert_eq!(again, (HookAnswer::Held, Then::Nothing, true));
}

#[test]
fn without_a_hook_everything_is_allowed() {
    let story = with_run(None, false, false);
    let answer = answered(&story, &Intent::removal(story.world.now));
    assert_eq!(answer, (HookAnswer::Allowed, Then::Nothing, false));
}

#[test]
fn the_success_for_a_removal_does_not_count_for_an_update() {
    let story = with_run(Some((Successful, 0)), true, false);
    let revision = story.world.revisions[0].name.clone();
    let target = Target::Revision(RevisionName::of(&revision));
    let update = Intent { target, ..Intent::removal(story.world.now) };
    // The run of the removal is deleted before the hook of the update starts.
    assert_eq!(answered(&story, &update), (HookAnswer::Held, Then::Nothing, false));
}
