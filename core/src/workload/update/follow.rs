//! Completes in-place updates that have started: resources, the images of later containers, the wait for the kubelet,
//! the PostInplace hook, the gate. A pause, the partition and the strategy prevent updates from starting, not from
//! completing.

use std::collections::HashSet;

use serde_json::Value;

use crate::api::Reason;
use crate::api::names::HookPoint;
use crate::guard::{Begun, HookAnswer, InPlaceState, in_place_state, may_have_players};
use crate::observed::quantity;
use crate::observed::{
    Container, Gate, InPlaceRecord, Pod, PodRef, PodUid, RevisionName, joined_revisions,
};
use crate::workload::decision::{Blocked, Decided, Decision};
use crate::workload::hooks::{Asked, Hooks, Intent, Needs};
use crate::workload::in_place;
use crate::workload::in_place::{Completion, Patching};
use crate::workload::update::{Scene, sidecars};
use crate::write::Write;

/// Continues the update of every pod that is being updated in place, and opens gates that no update keeps closed.
/// Pods in `changing` have already been handled.
pub(crate) fn follow<'a>(
    scene: &Scene<'a>,
    changing: &HashSet<PodUid>,
    hooks: &Hooks<'a>,
) -> Asked<'a, Decided> {
    let mut needs = Needs::default();
    let pods = scene.own.iter().copied();
    let pods = pods.filter(|pod| !pod.terminating && !changing.contains(&pod.uid()));
    let decisions = pods.map(|pod| match in_place_state(pod) {
        InPlaceState::Idle if pod.gate != Gate::Unset => Decision::Wait,
        InPlaceState::Idle | InPlaceState::Closed(_) => {
            Decision::Do(Write::open_gate(PodRef::of(pod)))
        }
        InPlaceState::Patched(begun) => {
            follow_change(scene, pod, begun, hooks).into_decision(&mut needs)
        }
    });
    let decided = decisions.collect();
    Asked::new(decided, needs)
}

fn follow_change<'a>(
    scene: &Scene<'a>,
    pod: &'a Pod,
    begun: Begun,
    hooks: &Hooks<'a>,
) -> Asked<'a, Decision> {
    let (now, record) = (scene.world.now, begun.record());
    if scene.world.refused_change_to(pod, &record.goal()).is_some()
        && let Some(write) = give_up(scene, begun)
    {
        return Decision::Do(write).into();
    }
    let resources = resources_to_set(pod, record);
    if !resources.is_empty() {
        return Decision::Do(Write::resize(begun, resources)).into();
    }
    match in_place::completion(pod, record, now) {
        Completion::Pending(wake) => {
            let next = in_place::next_turn(begun, scene.workload.order, now);
            next.unwrap_or_else(|| wake.map_or(Decision::Wait, Decision::Until)).into()
        }
        Completion::Stuck(why) => Decision::Blocked(Blocked {
            reason: Reason::ResizeNotPossible,
            message: format!(
                "pod {} cannot be resized: {why}; revert the change, or free resources on node {}",
                pod.name,
                pod.node.as_deref().unwrap_or("(none)")
            ),
        })
        .into(),
        Completion::Done => {
            let revisions = joined_revisions(pod.revision(), &record.sidecars);
            let intent = Intent {
                point: HookPoint::PostInplace,
                target: sidecars::target(pod.revision(), revisions.as_deref()),
                modified: &[],
                changes: None,
                // A hook cannot succeed for a pod in which nothing runs.
                possible: may_have_players(pod),
                rehearsal: None,
                deletes: false,
                at: now,
            };
            hooks.ask(pod, &intent).map(|answer| match answer {
                HookAnswer::Allowed => Decision::Do(finish(pod, record)),
                HookAnswer::Held | HookAnswer::PastDeadline => Decision::Wait,
            })
        }
    }
}

/// Takes a pod back whose update was refused halfway, so that it serves again. If only its sidecars were to change, it
/// keeps those that have changed, and the others count as due. None if there is no way back.
fn give_up(scene: &Scene, begun: Begun) -> Option<Write> {
    let (pod, record) = (begun.pod(), begun.record());
    let Scene { workload, revisions, world, .. } = scene;
    let previous = RevisionName::of(&record.from);
    if previous == pod.revision() {
        return Some(finish(pod, record));
    }
    let [current, previous] = [pod.revision(), previous].map(|it| revisions.get(it));
    let [current, previous] = [current?, previous?].map(|it| it.template.parse());
    let patching = Patching::InPlace(workload.order);
    let back = in_place::patch_back(begun, &current, &previous, world.now, patching)?;
    Some(Write::continue_in_place(begun, back))
}

fn finish(pod: &Pod, record: &InPlaceRecord) -> Write {
    match pod.gate {
        Gate::None => Write::finish_in_place(PodRef::of(pod), record),
        _ => Write::open_gate(PodRef::of(pod)),
    }
}

/// Resources that the record contains, but the pod's spec does not contain yet.
fn resources_to_set(pod: &Pod, record: &InPlaceRecord) -> Vec<(String, Value)> {
    let wanted = pod.containers.iter().filter_map(|container| {
        let resources = record.containers.get(&container.name)?.resources.as_ref()?;
        let resources = resources.parse();
        (!has_resources(container, &resources)).then(|| (container.name.clone(), resources))
    });
    wanted.collect()
}

/// Whether a container's spec has these requests and limits. It may have more: the API server adds a request where
/// there is only a limit.
fn has_resources(container: &Container, wanted: &Value) -> bool {
    let spec: Value = serde_json::from_str(&container.resources).unwrap_or_default();
    ["requests", "limits"].into_iter().all(|kind| {
        let quantities = wanted.get(kind).and_then(Value::as_object).into_iter().flatten();
        quantities.into_iter().all(|(name, value)| {
            let actual = spec.get(kind).and_then(|it| it.get(name));
            actual.is_some_and(|actual| quantity::canonical(actual) == quantity::canonical(value))
        })
    })
}
