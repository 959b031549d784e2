//! The initial state: a settled cluster with all pods at the first template, or a new workload.

use std::rc::Rc;

use super::explore::Settled;
use super::fair;
use super::model::Model;
use super::scope::Scope;
use super::state::*;

/// A new workload that has no pods yet.
fn new_workload(scope: &Scope) -> State {
    let workload = Workload {
        generation: 1,
        replicas: scope.replicas,
        template: 0,
        paused: false,
        strategy: scope.strategy,
        by_apply: false,
        partition: scope.partition,
        hook: 0,
        hooked: true,
        retry: 0,
        steps: 0,
        pods_to_delete: Vec::new(),
        reserved: 0,
        pause_annotation: 0,
        retry_annotation: 0,
        promote_annotation: 0,
        status: 0,
        waits: Vec::new(),
        guard: Guard { wanted: scope.protected, ..Guard::default() },
    };
    State {
        clock: 0,
        workload: Kind::new(workload),
        pods: Kind::new(Vec::new()),
        runs: Kind::new(Vec::new()),
        revisions: Kind::new(Vec::new()),
        sidecar_set: Kind::new(SidecarSet {
            exists: scope.sidecars.is_some_and(|it| it.exists),
            ..SidecarSet::default()
        }),
        allotter: Allotter::default(),
        budget: None,
        node: Node::Fine,
        denied: false,
        operator: Operator::default(),
        remaining: scope.remaining.clone(),
        memory: Memory::default(),
    }
}

/// The initial state of a scope.
pub fn start(model: &Model) -> State {
    match model.scope.batch {
        0 => settled(model),
        _ => new_workload(&model.scope),
    }
}

/// A settled cluster with all pods at the first template.
fn settled(model: &Model) -> State {
    let initial = new_workload(&model.scope);
    let mut state = fair::settle(model, &initial, true, &mut Settled::default())
        .unwrap_or_else(|unsettled| panic!("{unsettled:#?}"));
    state.workload.seen = Seen::Now;
    state.pods.seen = Seen::Now;
    state.runs.seen = Seen::Now;
    state.revisions.seen = Seen::Now;
    state.remaining = model.scope.remaining.clone();
    state.clock = 0;
    state.operator = Operator { budget: state.operator.budget, ..Operator::default() };
    for (number, pod) in Rc::make_mut(&mut state.pods.now).iter_mut().enumerate() {
        pod.ready = Some(0);
        pod.on_node = number < usize::from(model.scope.pods_on_node);
    }
    state
}
