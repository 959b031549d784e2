//! Stories of HookRuns: what they are created with, when they run again, and which of them count.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;

use super::story::story;
use crate::api::{HookPhase, HookRun, HookRunStatus};
use crate::workload::makes_same_plan;
use crate::write::{Change, Owned};

#[test]
fn a_run_records_its_purpose() {
    let mut story = story(
        2,
        json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "args", "args": [
            {"name": "service-name", "value": "svc.default"}]}}}),
    );
    let template = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookTemplate", "metadata": {"name": "args"},
        "spec": {
            "args": [{"name": "PodIP"}, {"name": "PodName"}, {"name": "PodNamespace"}, {"name": "service-name"}],
            "metrics": [{"name": "webtest", "provider": {"web": {"url": "http://{{ args.PodIP }}:9091"}}}],
        },
    });
    let template = serde_json::from_value(template).expect("template");
    story.world.templates.insert("args".to_owned(), std::sync::Arc::new(template));
    story.settle();
    story.user(json!({"replicas": 1})).settle();

    let run = story.world.runs[0].clone();
    let victim = story.pods().into_iter().find(|pod| pod.marked_deleting).expect("victim").clone();
    let revision = victim.revision().as_str();
    assert_eq!(run.name_any(), format!("pre-delete-hook-{revision}-{}-args", victim.instance()));
    let labels: BTreeMap<_, _> =
        run.labels().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let expected = [
        ("gamedeployment-type", "PreDelete"),
        ("PodControllerRevision", revision),
        ("InstanceID", victim.instance()),
        ("hookrun-type", "pre-delete-step"),
        ("workload-revision", revision),
        ("instance-id", victim.instance()),
    ];
    assert_eq!(labels, BTreeMap::from(expected));
    let args: Vec<_> =
        run.spec.args.iter().map(|arg| (arg.name.as_str(), arg.value.as_deref())).collect();
    assert_eq!(
        args,
        [
            ("PodIP", Some("127.9.0.1")),
            ("PodName", Some(victim.name.as_str())),
            ("PodNamespace", Some("default")),
            ("service-name", Some("svc.default")),
        ]
    );
}

#[test]
fn an_argument_without_a_value_is_reported_by_name() {
    let mut story =
        story(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "needy"}}}));
    let template = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookTemplate", "metadata": {"name": "needy"},
        "spec": {"metrics": [{"name": "webtest", "provider": {"web": {"url": "http://{{ args.host }}:9091"}}}]},
    });
    let template = serde_json::from_value(template).expect("template");
    story.world.templates.insert("needy".to_owned(), std::sync::Arc::new(template));
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    let (reason, message) = story.condition("FailedScale").expect("condition");
    assert_eq!(reason, "HookArgumentMissing");
    assert!(message.contains("host"), "{message}");
    assert!(story.runs().is_empty());
}

/// A status shows the messages of hundreds of runs, and conditions may quote them.
#[test]
fn the_message_of_a_run_is_cut_in_the_status() {
    let mut story =
        story(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.settle();
    story.user(json!({"replicas": 0})).settle();
    story.hooks_end("", HookPhase::Failed);
    for run in &mut story.world.runs {
        let run = Arc::make_mut(run);
        let status = run.status.as_mut().expect("a status");
        status.message = Some("x".repeat(1 << 20));
    }
    story.settle();
    let status = serde_json::to_string(&story.object.status).expect("a status");
    assert!(status.contains("xxx") && status.len() < 20_000, "{} bytes", status.len());
}

#[test]
fn a_changed_hook_is_run_again() {
    let mut story =
        story(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.template("other").settle();
    story.user(json!({"replicas": 1})).settle();
    story.hooks_end("", HookPhase::Successful);
    story.user(json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "other"}}}));
    let plan = story.plan();
    assert!(
        plan.writes
            .iter()
            .all(|it| matches!(it.change(), Change::Delete { kind: Owned::HookRun, .. })),
        "{plan:#?}"
    );
    story.settle();
    assert!(story.runs()[0].ends_with("-other"));
    assert_eq!(story.pods().len(), 2);
}

#[test]
fn a_retry_starts_ended_hooks_again_and_leaves_running_ones_alone() {
    let mut story =
        story(4, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.settle();
    story.user(json!({"replicas": 2})).settle();
    let runs = story.runs();
    story.hooks_end(&runs[0], HookPhase::Error);
    story.user(json!({"preDeleteUpdateStrategy": {"retry": true}})).settle();
    let runs_after_retry: Vec<_> =
        story.world.runs.iter().map(|run| (run.name_any(), run.uid())).collect();
    assert_eq!(runs_after_retry.len(), 2);
    assert_eq!(story.count(|it| matches!(it.change(), Change::CreateHookRun(_))), 3);
    assert_eq!(story.hooks_end("", HookPhase::Successful), 2);
    story.settle();
    assert_eq!(story.pods().len(), 2);
}

#[test]
fn a_retry_is_not_lost_if_it_is_requested_while_another_one_ends() {
    for reconciles in 0..6 {
        let hook = json!({"hook": {"templateName": "test"}});
        let mut story = story(
            3,
            json!({"preDeleteUpdateStrategy": hook, "preInplaceUpdateStrategy": hook,
                "updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 1}}),
        );
        story.settle();
        story.image("v2").user(json!({"replicas": 2})).settle();
        assert_eq!(story.hooks_end("", HookPhase::Failed), 2);
        story.settle();
        story.user(json!({"preDeleteUpdateStrategy": {"retry": true}}));
        (0..reconciles).for_each(|_| {
            story.reconcile();
        });
        story.user(json!({"preInplaceUpdateStrategy": {"retry": true}})).settle();
        assert_eq!(story.hooks_end("", HookPhase::Successful), 2, "after {reconciles} reconciles");
    }
}

/// Players may join after the hook, so a deletion that has to wait is not sent once the success is too old.
#[test]
fn a_deletion_may_be_sent_as_long_as_the_success_of_its_hook_is_valid() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = story(2, hook);
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    story.hooks_end("", HookPhase::Successful);
    let ended = story.world.now;
    let actions = story.wait(45).plan().writes;
    let allowed_until = actions.iter().find_map(|action| match action.change() {
        Change::DeletePod(it) => Some(it.pod.allowed_until),
        _ => None,
    });
    let expected = ended.checked_add(SignedDuration::from_secs(60)).ok();
    assert_eq!(allowed_until, Some(expected));
}

#[test]
fn ignored_fields_of_a_run_do_not_change_the_plan() {
    let mut removal =
        story(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    removal.settle().user(json!({"replicas": 1})).settle();
    let mut canary = story(
        2,
        json!({"updateStrategy": {"canary": {"steps": [
            {"partition": 1}, {"hook": {"templateName": "test"}}]}}}),
    );
    canary.settle().image("v2").settle();
    let time = |second| format!("2026-01-01T00:00:0{second}Z");
    let result = |count| json!([{"name": "webtest", "phase": "Running", "count": count}]);
    let error = |count| {
        let measurements = json!([{"phase": "Error", "message": "refused"}]);
        json!([{"name": "webtest", "phase": "Running", "consecutiveError": count, "measurements": measurements}])
    };
    let states = [
        json!(null),
        json!({"phase": "Pending"}),
        json!({"phase": "Running", "startedAt": time(1), "metricResults": result(0)}),
        json!({"phase": "Running", "startedAt": time(1), "metricResults": result(1), "message": "m"}),
        json!({"phase": "Running", "startedAt": time(1), "metricResults": error(1)}),
        json!({"phase": "Running", "startedAt": time(1), "metricResults": error(2)}),
        json!({"phase": "Successful", "startedAt": time(1), "finishedAt": time(2)}),
        json!({"phase": "Failed", "startedAt": time(1), "finishedAt": time(2)}),
        json!({"phase": "Failed", "startedAt": time(1), "finishedAt": time(3)}),
        json!({"phase": "Failed", "startedAt": time(1), "finishedAt": time(3), "message": "m"}),
        json!({"phase": "Failed", "startedAt": time(1), "finishedAt": time(3), "message": "m",
            "metricResults": result(1)}),
    ];
    for story in [&mut removal, &mut canary] {
        assert_eq!(story.world.runs.len(), 1);
        let planned: Vec<_> = states
            .iter()
            .map(|status| {
                let mut run = HookRun::clone(&story.world.runs[0]);
                run.status = serde_json::from_value(status.clone()).expect("a status");
                story.world.runs[0] = run.clone().into();
                (run, format!("{:?}", story.plan()))
            })
            .collect();
        let mut same_plans = 0;
        for ((one, plan), (other, other_plan)) in planned.iter().zip(&planned[1..]) {
            if makes_same_plan(one, other) {
                assert_eq!(plan, other_plan, "{one:?} {other:?}");
                same_plans += 1;
            }
        }
        assert_eq!(same_plans, 5, "four before the hook ends, and one after that");
    }
}

#[test]
fn a_success_dated_in_the_future_does_not_count() {
    for (seconds, remaining) in [(3, 1), (3600, 2)] {
        let mut story =
            story(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
        story.settle();
        story.user(json!({"replicas": 1})).settle();
        // The clock of the previous leader was ahead.
        story.wait(seconds);
        story.hooks_end("", HookPhase::Successful);
        story.wait(-seconds).settle();
        assert_eq!(story.pods().len(), remaining, "{seconds} s ahead");
        // The hook runs again.
        story.hooks_end("", HookPhase::Successful);
        story.settle();
        assert_eq!(story.pods().len(), 1);
    }
}

/// A copy of the operator's run, with this name and phase. Any user with permission to create HookRuns could create it.
fn copied(run: &HookRun, name: &str, phase: HookPhase, now: Timestamp) -> Arc<HookRun> {
    let mut copy = run.clone();
    copy.metadata.name = Some(name.to_owned());
    copy.metadata.uid = Some(format!("uid-{name}"));
    copy.status = Some(HookRunStatus {
        phase,
        started_at: Some(Time(now)),
        finished_at: Some(Time(now)),
        ..HookRunStatus::default()
    });
    Arc::new(copy)
}

#[test]
fn a_copy_of_a_run_under_another_name_has_no_effect() {
    let hook = json!({"hook": {"templateName": "test"}});
    let in_place = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    for (case, spec, change) in [
        ("a deletion", json!({"preDeleteUpdateStrategy": hook}), json!({"replicas": 1})),
        (
            "an update",
            json!({"preInplaceUpdateStrategy": hook, "updateStrategy": in_place}),
            json!({"template": {"spec": {"containers": [{"name": "game", "image": "game:v2"}]}}}),
        ),
    ] {
        // The cache shows runs in no particular order.
        for position in [0, 1] {
            let mut story = story(2, spec.clone());
            story.settle();
            story.user(change.clone()).settle();
            let own = story.runs();
            assert_eq!(own.len(), 1, "{case}");
            let images = story.images();
            let run = story.world.runs[0].clone();
            let copy = copied(&run, "mine", HookPhase::Successful, story.world.now);
            story.world.runs.insert(position, copy);
            story.settle();
            assert_eq!(story.runs(), own, "{case}: the copy is deleted, the run is kept");
            assert_eq!(story.pods().len(), 2, "{case}");
            assert_eq!(story.images(), images, "{case}");
            story.hooks_end("", HookPhase::Successful);
            story.settle();
            let has_continued = story.pods().len() == 1 || story.images() != images;
            assert!(has_continued, "{case}: the operator's run counts");
        }
    }
}

#[test]
fn only_a_run_that_was_created_for_this_workload_completes_a_step() {
    let steps = json!({"steps": [{"partition": 1}, {"hook": {"templateName": "test"}}]});
    let mut story = story(2, json!({"updateStrategy": {"canary": steps}}));
    story.settle();
    story.image("v2").settle();
    let run = story.world.runs.pop().expect("the step's run");
    let mut copy =
        HookRun::clone(&copied(&run, &run.name_any(), HookPhase::Successful, story.world.now));
    copy.metadata.annotations = None;
    story.world.runs.push(Arc::new(copy));
    let plan = story.plan();
    let index = plan.status.map(|it| it.current_step_index);
    assert!(index.is_none_or(|it| it == story.status().current_step_index));
    assert_eq!(story.images(), "v1 v2");
}
