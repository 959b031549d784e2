//! Every combination of what the guard has to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::observed::{Container, ContainerStatus, Gate, Resize};

/// An action, as the guard sees it.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    possible: bool,
    deletes: bool,
    needs_hook: bool,
    released: bool,
    lost_node: bool,
    hook: HookAnswer,
}

const VALID_UNTIL: Timestamp = Timestamp::UNIX_EPOCH;

impl Case for Fixed {
    fn is_possible(&self) -> bool {
        self.possible
    }

    fn deletes(&self) -> bool {
        self.deletes
    }

    fn needs_hook(&self) -> bool {
        self.needs_hook
    }

    fn is_released(&self) -> bool {
        self.released
    }

    fn is_on_lost_node(&self) -> bool {
        self.lost_node
    }

    fn hook(&self) -> HookAnswer {
        self.hook
    }

    fn valid_until(&self) -> Option<Timestamp> {
        Some(VALID_UNTIL)
    }
}

/// A pod whose game runs, or has not started.
fn pod(running: bool, terminating: bool) -> Pod {
    let status = ContainerStatus {
        image: "game:v1".to_owned(),
        image_id: String::new(),
        container_id: "1".to_owned(),
        restart_count: 0,
        ready: running,
        running,
        started_at: None,
        resources_applied: true,
    };
    let game = Container {
        name: "game".to_owned(),
        index: 0,
        init: false,
        image: "game:v1".to_owned(),
        resources: Arc::from("{}"),
        status: Some(status),
    };
    Pod {
        namespace: "games".to_owned(),
        name: "lobby-1".to_owned(),
        uid: "uid".to_owned(),
        resource_version: 7,
        generation: 1,
        created: Timestamp::UNIX_EPOCH,
        terminating,
        labels: BTreeMap::new().into(),
        controller: None,
        deletion_cost: 0,
        annotated: false,
        marked_deleting: false,
        waiting_since: None,
        move_requested: None,
        released: false,
        hot_patched: false,
        index: None,
        sidecars: BTreeMap::new(),
        record: None,
        postponed: None,
        trouble: None,
        node: None,
        phase: PodPhase::Running,
        disruption: None,
        ended_at_once: None,
        ready_since: None,
        gate: Gate::None,
        pod_ip: None,
        host_ip: None,
        observed_generation: 1,
        containers: vec![game],
        resize: Resize::Settled,
        qos: None,
        overhead: None,
        first_status: None,
    }
}

/// What the documentation of [`may_touch`] says, in the order in which it says it.
fn expected(case: Fixed, running: bool, terminating: bool) -> Option<Ground> {
    let allowed = [
        (!case.needs_hook, Ground::NoHook),
        (!running, Ground::NothingRuns),
        (case.deletes && case.lost_node, Ground::NodeLost),
        (case.released, Ground::Released),
        (case.hook == HookAnswer::Allowed, Ground::Hook),
        (case.hook == HookAnswer::PastDeadline, Ground::Deadline),
    ];
    let first = allowed.into_iter().find(|(holds, _)| *holds);
    first.map(|(_, ground)| ground).filter(|_| case.possible && !terminating)
}

#[test]
fn a_pod_may_be_touched_for_exactly_the_documented_reasons() {
    for bits in 0..1 << 7 {
        let is = |bit: u8| bits & (1 << bit) != 0;
        for hook in [HookAnswer::Allowed, HookAnswer::Held, HookAnswer::PastDeadline] {
            let case = Fixed {
                possible: is(0),
                deletes: is(1),
                needs_hook: is(2),
                released: is(3),
                lost_node: is(4),
                hook,
            };
            let pod = pod(is(5), is(6));
            let permit = may_touch(&pod, &case);
            let ground = permit.as_ref().map(Permit::ground);
            assert_eq!(ground, expected(case, is(5), is(6)), "{case:?}");
            let Some(permit) = permit else {
                continue;
            };
            let needs_unchanged = matches!(ground, Some(Ground::NothingRuns | Ground::NodeLost));
            assert_eq!(permit.for_action().version.is_some(), needs_unchanged, "{case:?}");
            assert_eq!(
                permit.for_change().version.is_some(),
                needs_unchanged || !is(5),
                "{case:?}"
            );
            assert_eq!(permit.for_unchanged().version, Some(7));
            let until = (ground == Some(Ground::Hook)).then_some(VALID_UNTIL);
            assert_eq!(permit.for_action().allowed_until, until, "{case:?}");
        }
    }
}

#[test]
fn a_closed_gate_opens_unless_the_change_is_allowed() {
    let pod = pod(true, false);
    for (hook, possible, expected) in [
        (HookAnswer::Held, true, "opens"),
        (HookAnswer::Allowed, false, "stays"),
        (HookAnswer::Allowed, true, "changes"),
    ] {
        let case = Fixed {
            possible,
            deletes: false,
            needs_hook: true,
            released: false,
            lost_node: false,
            hook,
        };
        let what = match closed_gate(&pod, &case) {
            ClosedGate::Opens => "opens",
            ClosedGate::Stays => "stays",
            ClosedGate::Change(permit) => {
                assert_eq!(permit.for_action().allowed_until, None);
                "changes"
            }
        };
        assert_eq!(what, expected);
    }
}
