//! No workload hangs without a word: random workloads, with random histories of templates, users and failures, and then
//! quiet. Whatever the history was, in the end either every pod has the revision that partition and steps ask for, or the
//! status says what is waited for, and nothing is created or deleted for ever.
//! `PROPTEST_CASES=10000 cargo test -p gamekeeper-core hangs` runs more of them.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;
use serde_json::{Value, json};

use super::story::{Story, merge, set, story};
use crate::api::crds;
use crate::api::{HookPhase, WorkloadStatus};
use crate::workload::Planned;
use crate::write::{Attempt, Change, Write};

/// A number of pods, or a percentage.
fn amount(most: i32) -> BoxedStrategy<Value> {
    let percent = select(vec!["0%", "25%", "50%", "100%"]).prop_map(|it| json!(it));
    prop_oneof![3 => (0..=most).prop_map(|it| json!(it)), 1 => percent].boxed()
}

fn steps() -> BoxedStrategy<Value> {
    let step = prop_oneof![
        3 => amount(4).prop_map(|it| json!({"partition": it})),
        1 => Just(json!({"pause": {}})),
        1 => Just(json!({"pause": {"duration": 60}})),
        1 => Just(json!({"hook": {"templateName": "test"}})),
    ];
    vec(step, 1..4).prop_map(|steps| json!({"steps": steps})).boxed()
}

fn any_strategy(ordered: bool) -> BoxedStrategy<Value> {
    let types = vec!["RollingUpdate", "InplaceUpdate", "HotPatchUpdate", "OnDelete"];
    let in_place = (
        option::of(select(vec![0, 5])),
        option::of(select(vec!["DisOrdered", "OrderedReady", "OrderedUpdated"])),
        option::of(select(vec!["Refuse", "Recreate"])),
    );
    let in_place = in_place.prop_map(|(grace, policy, when)| {
        json!({"gracePeriodSeconds": grace, "policy": policy, "whenImpossible": when})
    });
    let limits = (option::of(amount(4)), option::of(amount(3)), option::of(amount(4)));
    (select(types), limits, option::of(steps()), any::<bool>(), in_place, any::<bool>())
        .prop_map(move |(type_, (unavailable, surge, partition), canary, paused, in_place, inner)| {
            let limits = json!({
                "maxUnavailable": unavailable, "maxSurge": surge, "partition": partition,
            });
            let mut strategy = json!({
                "type": type_, "canary": canary, "paused": paused, "inPlaceUpdateStrategy": in_place,
            });
            match ordered && inner {
                true => strategy["rollingUpdate"] = limits,
                false => merge(&mut strategy, limits),
            }
            strategy
        })
        .boxed()
}

fn hook() -> BoxedStrategy<Value> {
    let hook = (any::<bool>(), any::<bool>()).prop_map(|(exists, retry)| {
        let name = if exists { "test" } else { "missing" };
        json!({"hook": {"templateName": name}, "retry": retry})
    });
    option::weighted(0.4, hook).prop_map(|it| json!(it)).boxed()
}

/// The fields of a spec that both kinds have.
fn common_spec(ordered: bool) -> BoxedStrategy<Value> {
    let protection = (
        select(vec!["None", "Guarded"]),
        option::of(select(vec![60, 86_400])),
        option::of(select(vec![30, 120])),
        select(vec!["Wait", "Move"]),
    );
    let protection = protection.prop_map(|(pods, deadline, again, going)| {
        json!({
            "pods": pods, "deadlineSeconds": deadline, "askAgainSeconds": again, "onNodeGoing": going,
        })
    });
    let history = option::of(0..3);
    let hooks = (hook(), hook(), hook());
    let deadline = option::of(select(vec![20, 600]));
    let others = (0..2, history, any::<bool>(), option::of(amount(3)), deadline);
    (any_strategy(ordered), hooks, option::of(protection), others)
        .prop_map(|(strategy, (delete, inplace, after), protection, others)| {
            let (min_ready, history, disable_gate, batch, deadline) = others;
            json!({
                "updateStrategy": strategy,
                "preDeleteUpdateStrategy": delete,
                "preInplaceUpdateStrategy": inplace,
                "postInplaceUpdateStrategy": after,
                "protection": protection,
                "minReadySeconds": 10 * min_ready,
                "revisionHistoryLimit": history,
                "progressDeadlineSeconds": deadline,
                "disableReadinessGate": disable_gate,
                "scaleStrategy": {"createBatch": batch},
            })
        })
        .boxed()
}

/// A value whose nulls are absent, as in a manifest.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, field)| !field.is_null());
            fields.map(|(name, field)| (name, without_nulls(field))).collect()
        }
        other => other,
    }
}

fn deployment_spec() -> BoxedStrategy<Value> {
    common_spec(false).prop_map(without_nulls).boxed()
}

fn set_spec() -> BoxedStrategy<Value> {
    let identity = (
        select(vec!["OrderedReady", "Parallel"]),
        option::of(0..2),
        vec(0..4, 0..3),
        any::<bool>(),
        option::of((select(vec!["Retain", "Delete"]), select(vec!["Retain", "Delete"]))),
    );
    (common_spec(true), identity)
        .prop_map(|(mut spec, (policy, start, reserved, claims, retention))| {
            let reserved: BTreeSet<i32> = reserved.into_iter().collect();
            let claims = claims.then(|| json!([{"metadata": {"name": "data"}, "spec": {}}]));
            let retention = retention
                .map(|(deleted, scaled)| json!({"whenDeleted": deleted, "whenScaled": scaled}));
            let identity = json!({
                "podManagementPolicy": policy,
                "ordinals": start.map(|it| json!({"start": it})),
                "reserveOrders": reserved,
                "volumeClaimTemplates": claims,
                "persistentVolumeClaimRetentionPolicy": retention,
            });
            merge(&mut spec, identity);
            without_nulls(spec)
        })
        .boxed()
}

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// A user sets another build. One in three never becomes ready.
    Image(u8),
    /// A change that cannot be made in place, or one that can, of resources.
    NodeSelector(bool),
    Cpu(u8),
    Scale(i32),
    Pause(bool),
    Strategy(Value),
    NameForDeletion(usize),
    Retry,
    /// Hooks end.
    Hooks(HookPhase),
    Wait(i64),
    Plan(u8),
    /// A pod fails by itself, is deleted, or becomes Terminating.
    Fail(usize),
    Vanish(usize),
    /// The API server refuses this build, or this kind of write, until it no longer does.
    Refuse(Option<&'static str>),
    RefuseWrite(Option<Attempt>),
    Quota(Option<usize>),
    /// The ControllerRevision of some revision is deleted.
    LoseRevision(usize),
    LoseStatus,
    Move(usize),
}

fn event(ordered: bool) -> BoxedStrategy<Event> {
    let attempts = vec![
        Attempt::CreatePod,
        Attempt::RemovePod,
        Attempt::RecreatePod,
        Attempt::ChangePod,
        Attempt::StartUpdateHook,
        Attempt::StartRemovalHook,
        Attempt::RecordRevision,
        Attempt::SteerRollout,
    ];
    let phases = vec![HookPhase::Successful, HookPhase::Failed, HookPhase::Error];
    let refusals =
        vec!["not allowed", "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"];
    prop_oneof![
        6 => (1..6_u8).prop_map(Event::Image),
        1 => any::<bool>().prop_map(Event::NodeSelector),
        1 => (1..4_u8).prop_map(Event::Cpu),
        3 => (0..6).prop_map(Event::Scale),
        2 => any::<bool>().prop_map(Event::Pause),
        1 => any_strategy(ordered).prop_map(|it| Event::Strategy(without_nulls(it))),
        1 => (0..6_usize).prop_map(Event::NameForDeletion),
        1 => Just(Event::Retry),
        4 => select(phases).prop_map(Event::Hooks),
        2 => (1..90_i64).prop_map(Event::Wait),
        8 => (1..12_u8).prop_map(Event::Plan),
        1 => (0..6_usize).prop_map(Event::Fail),
        1 => (0..6_usize).prop_map(Event::Vanish),
        1 => option::of(select(refusals)).prop_map(Event::Refuse),
        1 => option::of(select(attempts)).prop_map(Event::RefuseWrite),
        1 => option::of(0..8_usize).prop_map(Event::Quota),
        1 => (0..3_usize).prop_map(Event::LoseRevision),
        1 => Just(Event::LoseStatus),
        1 => (0..6_usize).prop_map(Event::Move),
    ]
    .boxed()
}

fn apply<K: Planned + Serialize>(story: &mut Story<K>, event: Event) {
    let pod = |story: &Story<K>, index: usize| {
        let names = story.names();
        (!names.is_empty()).then(|| names[index % names.len()].clone())
    };
    let container = |change: Value| json!({"template": {"spec": {"containers": [change]}}});
    match event {
        Event::Image(number) => {
            let broken = number.is_multiple_of(3).then_some("true");
            let image = format!("game:v{number}");
            let mut game = json!({"name": "game", "image": image});
            if let Some(resources) = game_of(story).get("resources") {
                game["resources"] = resources.clone();
            }
            let labels = json!({"template": {"metadata": {"labels": {"broken": broken}}}});
            story.user(container(game)).user(labels);
        }
        Event::NodeSelector(set) => {
            let selector = set.then(|| json!({"disk": "fast"}));
            story.user(json!({"template": {"spec": {"nodeSelector": selector}}}));
        }
        Event::Cpu(number) => {
            let mut game = game_of(story);
            game["resources"] = json!({"requests": {"cpu": number.to_string()}});
            story.user(container(game));
        }
        Event::Scale(replicas) => {
            story.user(json!({"replicas": replicas}));
        }
        Event::Pause(paused) => {
            story.user(json!({"updateStrategy": {"paused": paused}}));
        }
        Event::Strategy(strategy) => {
            story.user(json!({"updateStrategy": strategy}));
        }
        Event::NameForDeletion(index) => {
            if let (Some(name), "GameDeployment") = (pod(story, index), K::KIND.as_str()) {
                story.user(json!({"scaleStrategy": {"podsToDelete": [name]}}));
            }
        }
        Event::Retry => {
            for point in ["preDelete", "preInplace", "postInplace"] {
                story.user(json!({format!("{point}UpdateStrategy"): {"retry": true}}));
            }
        }
        Event::Hooks(phase) => {
            story.hooks_end("", phase);
        }
        Event::Wait(seconds) => {
            story.wait(seconds);
        }
        Event::Plan(count) => {
            for _ in 0..count {
                story.reconcile();
            }
        }
        Event::Fail(index) => {
            if let Some(name) = pod(story, index) {
                story.fail_pod(&name);
            }
        }
        Event::Vanish(index) => {
            if let Some(name) = pod(story, index) {
                story.world.pods.retain(|pod| pod.name != name);
            }
        }
        Event::Refuse(refusal) => story.dry_run_refusal = refusal.map(str::to_owned),
        Event::RefuseWrite(attempt) => story.refuses = attempt,
        Event::Quota(pods) => story.quota = pods,
        Event::LoseRevision(index) => {
            let revisions = &mut story.world.revisions;
            if index < revisions.len() {
                revisions.remove(index);
            }
        }
        Event::LoseStatus => *story.object.status_mut() = None,
        Event::Move(index) => {
            if let Some(name) = pod(story, index) {
                let requested = Some(crate::observed::MoveRequest::User);
                story.edit_pod(&name, |pod| pod.move_requested = requested);
            }
        }
    }
}

fn game_of<K: Planned + Serialize>(story: &Story<K>) -> Value {
    let object = serde_json::to_value(&story.object).expect("JSON");
    object["spec"]["template"]["spec"]["containers"][0].clone()
}

/// How hooks end once nothing else happens.
#[derive(Clone, Copy, Debug)]
enum Quiet {
    HooksPass,
    HooksFail,
}

/// Nothing else happens: kubelets act, hooks end, time passes. Returns what was created and deleted in the last of many
/// rounds.
fn become_quiet<K: Planned + Serialize>(story: &mut Story<K>, quiet: Quiet) -> usize {
    let touches = |it: &Write| matches!(it.change(), Change::CreatePod(_) | Change::DeletePod(_));
    for round in 0..60 {
        let touched = story.count(touches);
        for _ in 0..40 {
            if let Quiet::HooksPass = quiet {
                story.hooks_end("", HookPhase::Successful);
            }
            if !story.reconcile() {
                break;
            }
        }
        if let Quiet::HooksFail = quiet {
            story.hooks_end("", HookPhase::Failed);
        }
        if round == 59 {
            return story.count(touches) - touched;
        }
        story.wait(if round % 7 == 6 { 400 } else { 31 });
    }
    unreachable!("the last round returns")
}

/// What is wrong with the end of a history; None if all is well.
fn complaint<K: Planned + Serialize>(story: &Story<K>, touched: usize) -> Option<String> {
    let status = story.status();
    let reason = |type_: &str| story.condition(type_).map(|it| it.0).unwrap_or_default();
    let progressing = reason("Progressing");
    let refuses =
        story.refuses.is_some() || story.quota.is_some() || story.creation_refusal.is_some();
    if touched > 0 && !refuses {
        return Some(format!("{touched} pods are still created or deleted after all this time"));
    }
    if progressing == "Complete" {
        return is_wrongly_complete(story, &status);
    }
    let is_broken =
        |pod: &&crate::observed::Pod| !pod.is_ready() && pod.labels.contains_key("broken");
    let is_named = names_pods(&status) || progressing != "RollingOut";
    // That a pod of a broken build does not start is not for the planner to find out.
    let has_broken = story.pods().iter().any(is_broken);
    (!is_named && !has_broken).then(|| {
        let (_, message) = story.condition("Ready").unwrap_or_default();
        format!("RollingOut for ever; Ready: {message}")
    })
}

/// Whether the status names pods that wait.
fn names_pods(status: &WorkloadStatus) -> bool {
    let waiting = status.protection.as_ref().is_some_and(|it| !it.waiting.is_empty());
    waiting || status.blocked_pods().into_iter().any(|(_, pods)| !pods.is_empty())
}

fn is_wrongly_complete<K: Planned + Serialize>(
    story: &Story<K>,
    status: &WorkloadStatus,
) -> Option<String> {
    let spec = serde_json::to_value(&story.object).expect("JSON")["spec"].take();
    let pods = story.pods();
    let replicas = spec["replicas"].as_u64().unwrap_or(1) as usize;
    if pods.len() != replicas {
        return Some(format!("Complete with {} of {replicas} pods", pods.len()));
    }
    let old = pods.iter().filter(|pod| pod.revision().as_str() != status.update_revision).count();
    let strategy = &spec["updateStrategy"];
    let inner = &strategy["rollingUpdate"]["partition"];
    let partition = if inner.is_null() { &strategy["partition"] } else { inner };
    let partition = serde_json::from_value(partition.clone()).ok();
    let kept = crate::observed::limits::partition(partition.as_ref(), replicas as i64);
    let kept = if strategy["canary"]["steps"].is_null() { kept } else { 0 };
    let may_be_old = strategy["type"] == "OnDelete" || old as i64 <= kept;
    (!may_be_old).then(|| format!("Complete with {old} old pods; the partition keeps {kept}"))
}

fn check<K: Planned + Serialize>(
    mut story: Story<K>,
    events: Vec<Event>,
    quiet: Quiet,
) -> Result<(), TestCaseError> {
    for event in events.clone() {
        apply(&mut story, event);
    }
    let touched = become_quiet(&mut story, quiet);
    if let Some(complaint) = complaint(&story, touched) {
        let spec = serde_json::to_value(&story.object).expect("JSON")["spec"].take();
        let pods: Vec<_> = story
            .pods()
            .iter()
            .map(|it| format!("{} {} ready {}", it.name, it.revision(), it.is_ready()))
            .collect();
        let conditions = story.status().conditions;
        let conditions: Vec<_> = conditions
            .iter()
            .map(|it| format!("{} {} {}: {}", it.type_, it.status, it.reason, it.message))
            .collect();
        return Err(TestCaseError::fail(format!(
            "{complaint}\n{spec}\n{events:?}\n{pods:#?}\n{conditions:#?}\nstable {}, step {:?}, runs {:?}",
            story.status().canary.revision,
            story.status().current_step_index,
            story.runs(),
        )));
    }
    Ok(())
}

fn quiet() -> impl Strategy<Value = Quiet> {
    prop_oneof![3 => Just(Quiet::HooksPass), 1 => Just(Quiet::HooksFail)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default()
    })]

    #[test]
    fn a_deployment_says_what_it_waits_for(
        replicas in 0..5, spec in deployment_spec(), events in vec(event(false), 0..25), quiet in quiet(),
    ) {
        check(story(replicas, spec), events, quiet)?;
    }

    #[test]
    fn a_set_says_what_it_waits_for(
        replicas in 0..5, spec in set_spec(), events in vec(event(true), 0..25), quiet in quiet(),
    ) {
        check(set(replicas, spec), events, quiet)?;
    }
}

/// Fields that histories set, or with which the planner does not plan: the webhook, the API server and tests of their own
/// check those.
const NOT_GENERATED: [&str; 10] = [
    "postInplaceUpdateStrategy.hook.args",
    "preDeleteUpdateStrategy.hook.args",
    "preInplaceUpdateStrategy.hook.args",
    "replicas",
    "selector",
    "serviceName",
    "template",
    "scaleStrategy.podsToDelete",
    "updateStrategy.canary.steps",
    "volumeClaimTemplates",
];

/// The paths of all values in a spec; lists count as values.
fn paths(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    let Some(fields) = value.as_object() else {
        all.insert(path.to_owned());
        return;
    };
    for (name, field) in fields {
        paths(field, format!("{path}.{name}").trim_start_matches('.'), all);
    }
}

/// The paths of all fields in a schema.
fn fields(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object().filter(|_| path != "template");
    let Some(properties) = properties.filter(|it| !it.is_empty()) else {
        all.insert(path.to_owned());
        return;
    };
    for (name, field) in properties {
        fields(field, format!("{path}.{name}").trim_start_matches('.'), all);
    }
}

/// A field that the schema gains must become a part of the histories.
#[test]
fn histories_have_all_fields_that_the_schema_knows() {
    for crd in crds() {
        let kind = crd.spec.names.kind;
        let spec = match kind.as_str() {
            "GameDeployment" => deployment_spec(),
            "GameStatefulSet" => set_spec(),
            _ => continue,
        };
        let schema = json!(crd.spec.versions[0].schema);
        let schema = &schema["openAPIV3Schema"]["properties"]["spec"];
        let (mut known, mut generated) = (BTreeSet::new(), BTreeSet::new());
        fields(schema, "", &mut known);
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..200 {
            let sample = spec.new_tree(&mut runner).expect("a value").current();
            paths(&sample, "", &mut generated);
        }
        let is_listed = |field: &&String| {
            let is_below =
                |it: &&str| field.as_str() == *it || field.starts_with(&format!("{it}."));
            NOT_GENERATED.iter().any(is_below)
        };
        let covers = |field: &&String| generated.iter().any(|it| it.starts_with(field.as_str()));
        let missing: Vec<_> = known.iter().filter(|it| !is_listed(it) && !covers(it)).collect();
        assert_eq!(missing, [""; 0], "{kind}");
    }
}
