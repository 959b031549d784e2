//! Tests of the changes that commands decide on, and of refusals.

use gamekeeper_core::api::names::{HookPoint, ROLLED_BACK_ANNOTATION};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::Change;
use super::image::{NewImage, set_images};
use super::pause::{pause, promote, promote_fully, resume};
use super::restart::restart;
use super::retry::retry;
use super::undo::undo;
use crate::error::Error;
use crate::fixture::{
    failed_pod_hook, failed_step, now, patched, paused_canary, stateful_set, without_runs,
};
use crate::scene::Scene;

/// The outcome and the patch, without the resourceVersion that each patch contains.
fn outcome_and_patch(scene: &Scene, change: Result<Change, Error>) -> (String, Value) {
    let change = change.expect("a change");
    let patch = change.patch(&scene.game).map(|patch| json!(patch)).unwrap_or_default();
    let Value::Array(mut operations) = patch else {
        return (change.outcome, Value::Null);
    };
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": scene.game.object["metadata"]["resourceVersion"]});
    assert_eq!(operations.pop(), Some(version));
    (change.outcome, Value::Array(operations))
}

fn refused(change: Result<Change, Error>) -> String {
    change.expect_err("a refusal").to_string()
}

fn paused_by_user() -> Scene {
    patched(paused_canary(), json!({"status": {"pauseConditions": null}}))
}

fn running() -> Scene {
    patched(paused_by_user(), json!({"spec": {"updateStrategy": {"paused": false}}}))
}

fn replace(path: &str, value: impl Into<Value>) -> Value {
    json!([{"op": "replace", "path": path, "value": value.into()}])
}

const PAUSED: &str = "/spec/updateStrategy/paused";

#[test]
fn pause_and_resume_set_one_field() {
    let scene = running();
    assert_eq!(
        outcome_and_patch(&scene, pause(&scene.game)),
        ("paused".to_owned(), replace(PAUSED, true))
    );
    let bare = patched(stateful_set(), json!({"spec": {"updateStrategy": null}}));
    let (_, patch) = outcome_and_patch(&bare, pause(&bare.game));
    assert_eq!(
        patch,
        json!([{"op": "add", "path": "/spec/updateStrategy", "value": {"paused": true}}])
    );
    for scene in [paused_canary(), paused_by_user()] {
        assert_eq!(
            outcome_and_patch(&scene, resume(&scene.game)),
            ("resumed".to_owned(), replace(PAUSED, false))
        );
    }
    assert_eq!(refused(resume(&running().game)), "gd/game is not paused");
    assert_eq!(refused(pause(&paused_by_user().game)), "gd/game is already paused");
}

#[test]
fn a_pause_step_with_a_duration_becomes_a_users_pause() {
    assert!(refused(pause(&paused_canary().game)).contains("already paused by canary step 1"));
    let timed = patched(paused_canary(), json!({"status": {"currentStepIndex": 3}}));
    let (outcome, patch) = outcome_and_patch(&timed, pause(&timed.game));
    assert_eq!(outcome, "paused: took over the pause of canary step 3");
    assert_eq!(
        patch,
        json!([{"op": "remove", "path": "/metadata/annotations/gamekeeper.tkex.tencent.com~1pause"}])
    );
}

#[test]
fn promote_continues_only_past_a_paused_step() {
    let scene = paused_canary();
    let (outcome, patch) = outcome_and_patch(&scene, promote(&scene.game));
    assert_eq!(
        (outcome.as_str(), patch),
        ("promoted past canary step 1 (pause)", replace(PAUSED, false))
    );
    assert!(refused(promote(&paused_by_user().game)).contains("paused by a user"));
    assert!(refused(promote(&running().game)).contains("in progress"));
    assert!(refused(promote(&stateful_set().game)).contains("not at a canary step"));
}

#[test]
fn a_pause_ends_although_an_apply_has_set_paused_to_false() {
    let pause = json!({
        "revision": "game-new", "stepHash": "steps", "index": 1, "reason": "PausedByCanaryPauseStep",
        "time": "2026-11-21T10:00:00Z", "applyIgnored": true,
    });
    let applied = |pause: &Value| {
        let annotations = json!({"gamekeeper.tkex.tencent.com/pause": pause.to_string()});
        let strategy = json!({"updateStrategy": {"paused": false}});
        patched(
            paused_canary(),
            json!({"metadata": {"annotations": annotations}, "spec": strategy}),
        )
    };
    let scene = applied(&pause);
    let path = "/metadata/annotations/gamekeeper.tkex.tencent.com~1pause";
    for change in [resume(&scene.game), promote(&scene.game)] {
        let (_, patch) = outcome_and_patch(&scene, change);
        assert_eq!((&patch[0]["op"], &patch[0]["path"]), (&json!("replace"), &json!(path)));
        let text = patch[0]["value"].as_str().expect("text");
        let written: Value = serde_json::from_str(text).expect("JSON");
        let mut ended = pause.clone();
        ended["over"] = json!(true);
        assert_eq!((written, patch.as_array().map(Vec::len)), (ended, Some(1)));
    }
    let mut ended = pause;
    ended["over"] = json!(true);
    assert_eq!(refused(resume(&applied(&ended).game)), "gd/game is not paused");
}

#[test]
fn a_full_promotion_applies_only_to_the_current_rollout() {
    let hashed = json!({"status": {"currentStepHash": "steps"}});
    let scene = patched(paused_canary(), hashed.clone());
    let (outcome, patch) = outcome_and_patch(&scene, promote_fully(&scene.game));
    assert_eq!(outcome, "fully promoted: skips canary steps 1 to 4");
    let annotation = json!({
        "op": "add", "path": "/metadata/annotations/gamekeeper.tkex.tencent.com~1promote",
        "value": r#"{"revision":"game-new","stepHash":"steps"}"#,
    });
    assert_eq!(patch, json!([annotation, replace(PAUSED, false)[0]]));
    let scene = patched(running(), hashed);
    assert_eq!(outcome_and_patch(&scene, promote_fully(&scene.game)).1, json!([annotation]));
    assert!(refused(promote_fully(&paused_by_user().game)).contains("paused by a user"));
    assert!(refused(promote_fully(&stateful_set().game)).contains("not at a canary step"));
    let unseen = patched(paused_canary(), json!({"metadata": {"generation": 9}}));
    assert!(refused(promote_fully(&unseen.game)).contains("has not observed"));
}

#[test]
fn undo_goes_back_to_the_stable_revision() {
    let scene = paused_canary();
    let (outcome, patch) = outcome_and_patch(&scene, undo(&scene, None));
    assert_eq!(outcome, "rolled back to revision 1 (game:v1, log:v1)");
    assert!(
        patch.as_array().is_some_and(
            |it| it.contains(&replace("/spec/template/spec/containers/0/image", "game:v1")[0])
        ),
        "{patch}"
    );
    assert_eq!(outcome_and_patch(&scene, undo(&scene, Some(1))).0, outcome);
    let cause = json!({"kubernetes.io/change-cause": "winter event"});
    let same = patched(scene, json!({"spec": {"template": {"metadata": {"annotations": cause}}}}));
    let (outcome, patch) = outcome_and_patch(&same, undo(&same, Some(2)));
    assert_eq!(
        (outcome.as_str(), patch),
        ("skipped rollback (current template already matches revision 2)", Value::Null)
    );
}

#[test]
fn undo_lists_the_known_revisions() {
    let scene = paused_canary();
    assert_eq!(refused(undo(&scene, Some(7))), "gd/game has no revision 7; its revisions are 1, 2");
    assert_eq!(
        refused(undo(&stateful_set(), None)),
        "gsts/world has no earlier revision to roll back to that was ever stable: choose one with --to-revision; see \
         kubectl game history gsts/world -n prod"
    );
}

#[test]
fn undo_needs_a_revision_while_the_operator_has_not_observed_the_spec() {
    let generation = json!({"metadata": {"generation": 9}});
    let complete = patched(failed_pod_hook(), generation.clone());
    assert_eq!(
        refused(undo(&complete, None)),
        "the operator has not observed the latest gd/game yet, so the previous revision is not known: wait until it has \
         (see kubectl game status gd/game -n prod), or choose one with --to-revision"
    );
    let (outcome, _) = outcome_and_patch(&complete, undo(&complete, Some(2)));
    assert!(outcome.starts_with("rolled back to revision 2 ("), "{outcome}");
    // During a rollout, the stable revision does not depend on the latest change.
    let rolling = patched(paused_canary(), generation);
    let (outcome, _) = outcome_and_patch(&rolling, undo(&rolling, None));
    assert_eq!(outcome, "rolled back to revision 1 (game:v1, log:v1)");
}

/// `failed_pod_hook`, whose rollout is complete, with revisions that were stable before.
fn stable_before(revisions: &[&str]) -> Scene {
    patched(failed_pod_hook(), json!({"status": {"earlierStableRevisions": revisions}}))
}

#[test]
fn undo_goes_back_to_what_was_stable_and_not_to_what_never_was() {
    let scene = stable_before(&[]);
    let other = scene.revisions.iter().find(|it| !scene.role(&it.name_any()).contains("current"));
    let other = other.expect("another revision").name_any();
    let message = refused(undo(&scene, None));
    assert!(message.contains("that was ever stable"), "{message}");
    assert!(message.ends_with("see kubectl game history gd/game -n prod"), "{message}");
    let scene = stable_before(&["game-gone", &other]);
    let (outcome, patch) = outcome_and_patch(&scene, undo(&scene, None));
    assert!(outcome.starts_with("rolled back to revision "), "{outcome}");
    let annotation = format!("{patch}");
    assert!(annotation.contains("rolled-back") && annotation.contains(&other), "{patch}");
}

#[test]
fn an_undo_is_not_undone() {
    let scene = stable_before(&["game-old", "game-new"]);
    let update = scene.game.status.update_revision.clone();
    let annotations = json!({ROLLED_BACK_ANNOTATION: update});
    let scene = patched(scene, json!({"metadata": {"annotations": annotations}}));
    let message = refused(undo(&scene, None));
    assert!(message.contains("an undo is not undone"), "{message}");
    let number = scene.revisions[0].revision;
    assert!(undo(&scene, Some(number)).is_ok());
}

#[test]
fn undo_during_a_users_pause_notes_that_no_pod_is_updated() {
    let scene = paused_by_user();
    let note = undo(&scene, None).expect("a change").note;
    assert!(note.is_some_and(|note| {
        note.contains("no pod is updated until you run kubectl game resume gd/game")
    }));
}

#[test]
fn set_image_changes_the_containers_it_names() {
    let scene = running();
    let images = |words: &[&str]| {
        let images = words.iter().map(|word| NewImage::parse(word));
        set_images(&scene.game, &images.collect::<Result<Vec<_>, _>>()?)
    };
    let (outcome, patch) = outcome_and_patch(&scene, images(&["game=game:v3"]));
    assert_eq!(
        (outcome.as_str(), patch),
        ("image updated", replace("/spec/template/spec/containers/0/image", "game:v3"))
    );
    let (_, patch) = outcome_and_patch(&scene, images(&["*=all:v1"]));
    assert_eq!(patch.as_array().map(Vec::len), Some(2));
    assert_eq!(
        outcome_and_patch(&scene, images(&["game=game:v2"])),
        ("image unchanged".to_owned(), Value::Null)
    );
    assert_eq!(
        refused(images(&["gmae=game:v3"])),
        "gd/game has no container \"gmae\": did you mean \"game\"?"
    );
    assert_eq!(
        refused(images(&["web=game:v3"])),
        "gd/game has no container \"web\": its containers are game, log"
    );
    assert_eq!(refused(images(&["game="])), "\"game=\" is not CONTAINER=IMAGE");
}

#[test]
fn restart_is_refused_where_no_pod_would_be_recreated() {
    let scene = stateful_set();
    let (outcome, patch) = outcome_and_patch(&scene, restart(&scene.game, now()));
    assert_eq!(outcome, "restarted");
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": "2026-11-21T10:05:00Z"});
    assert_eq!(
        patch,
        json!([{"op": "add", "path": "/spec/template/metadata/annotations", "value": annotations}])
    );
    let message = refused(restart(&paused_canary().game, now()));
    assert!(message.ends_with("podsToDelete to replace them within maxUnavailable"));
    let hook = json!({"hook": {"templateName": "nobody-plays"}});
    let hooked = patched(paused_canary(), json!({"spec": {"preDeleteUpdateStrategy": hook}}));
    assert!(refused(restart(&hooked.game, now())).ends_with(", each after its PreDelete hook"));
    let in_place =
        patched(stateful_set(), json!({"spec": {"updateStrategy": {"type": "InplaceUpdate"}}}));
    assert!(refused(restart(&in_place.game, now())).contains("RollingUpdate"));
}

#[test]
fn retry_is_requested_for_failed_hooks() {
    let retry_patch =
        json!([{"op": "add", "path": "/spec/preDeleteUpdateStrategy/retry", "value": true}]);
    for scene in [failed_pod_hook(), without_runs(failed_pod_hook())] {
        for point in [None, Some(HookPoint::PreDelete)] {
            let (outcome, patch) = outcome_and_patch(&scene, retry(&scene, point));
            assert_eq!((outcome.as_str(), &patch), ("retried: 1 PreDelete hook", &retry_patch));
        }
    }
    let retried =
        patched(failed_pod_hook(), json!({"spec": {"preDeleteUpdateStrategy": {"retry": true}}}));
    assert_eq!(
        outcome_and_patch(&retried, retry(&retried, None)),
        ("is already being retried".to_owned(), Value::Null)
    );
    let scene = failed_pod_hook();
    let message = refused(retry(&scene, Some(HookPoint::PreInplace)));
    assert_eq!(message, "no PreInplace hook of a pod of gd/game has failed: nothing to retry");
    let retry_of_step = json!([{
        "op": "add", "path": "/metadata/annotations/gamekeeper.tkex.tencent.com~1retry",
        "value": r#"{"generation":3,"points":["Step"]}"#,
    }]);
    for point in [None, Some(HookPoint::Step)] {
        let (outcome, patch) = outcome_and_patch(&failed_step(), retry(&failed_step(), point));
        assert_eq!(outcome, "retried: the hook of canary step 4");
        assert_eq!(patch, retry_of_step);
    }
    let message = refused(retry(&failed_pod_hook(), Some(HookPoint::Step)));
    assert!(message.ends_with("nothing to retry"), "{message}");
}
