//! Follows pods whose in-place update was started to its end: resources, the wait, the PostInplace
//! hook, the gate. Pause, partition and strategy stop starts, not ends.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::Reason;
use crate::api::names::HookPoint;
use crate::plan::decision::{Action, Blocked, Draft, PodRef};
use crate::plan::hooks::{Answer, Hooks, Intent, Target, guard};
use crate::plan::in_place::{Completion, InPlaceState};
use crate::plan::observed::{Container, Gate, InPlaceRecord, Pod};
use crate::plan::{in_place, quantity};

/// Follows every pod that is under way; opens gates that no update needs.
pub fn follow<'a>(
    now: Timestamp,
    pods: &[&'a Pod],
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) -> Option<Blocked> {
    let mut blocked = None;
    for pod in pods.iter().filter(|pod| !pod.terminating) {
        if draft.is_kept_closed(pod) {
            continue;
        }
        match in_place::state(pod) {
            InPlaceState::Idle if pod.gate != Gate::Unset => {}
            InPlaceState::Idle | InPlaceState::Closed(_) => {
                draft.push(Action::OpenGate(PodRef::of(pod)))
            }
            InPlaceState::Patched(record) => {
                blocked = blocked.or(follow_change(now, pod, record, hooks, draft));
            }
        }
    }
    blocked
}

fn follow_change<'a>(
    now: Timestamp,
    pod: &'a Pod,
    record: &InPlaceRecord,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) -> Option<Blocked> {
    let resources = resources_to_set(pod, record);
    if !resources.is_empty() {
        let pod = PodRef::of(pod);
        draft.push(Action::ResizePod { pod, resources });
        return None;
    }
    match in_place::completion(pod, record, now) {
        Completion::Pending(wake) => {
            wake.into_iter().for_each(|at| draft.wake_at(at));
            None
        }
        Completion::Stuck(why) => Some(Blocked {
            reason: Reason::ResizeNotPossible,
            message: format!(
                "pod {} cannot be resized: {why}; revert the change, or free resources on node {}",
                pod.name,
                pod.node.as_deref().unwrap_or("(none)")
            ),
        }),
        Completion::Done => {
            let intent = Intent {
                point: HookPoint::PostInplace,
                target: Target::Revision(pod.revision()),
                modified: &[],
                // Nothing that does not run can be found well.
                possible: guard::may_have_players(pod),
                at: now,
            };
            if hooks.clear(pod, &intent, draft) == Answer::Cleared {
                draft.push(finish(pod, record));
            }
            None
        }
    }
}

fn finish(pod: &Pod, record: &InPlaceRecord) -> Action {
    match pod.gate {
        Gate::None => Action::FinishInPlace {
            pod: PodRef::of(pod),
            record: InPlaceRecord {
                done: true,
                ..record.clone()
            },
        },
        _ => Action::OpenGate(PodRef::of(pod)),
    }
}

/// Resources of the record that the spec does not show yet.
fn resources_to_set(pod: &Pod, record: &InPlaceRecord) -> Vec<(String, Value)> {
    let wanted = pod.containers.iter().filter_map(|container| {
        let resources = record.containers.get(&container.name)?.resources.as_ref()?;
        (!shows(container, resources)).then(|| (container.name.clone(), resources.clone()))
    });
    wanted.collect()
}

/// Whether a container's spec has these requests and limits (and maybe more: a limit alone makes
/// the API server add the request).
fn shows(container: &Container, wanted: &Value) -> bool {
    let spec: Value = serde_json::from_str(&container.resources).unwrap_or_default();
    ["requests", "limits"].into_iter().all(|kind| {
        let quantities = wanted
            .get(kind)
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        quantities.into_iter().all(|(name, value)| {
            let shown = spec.get(kind).and_then(|shown| shown.get(name));
            shown.is_some_and(|shown| quantity::canonical(shown) == quantity::canonical(value))
        })
    })
}
