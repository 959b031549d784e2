//! The canonical form of a state: pods are numbered by age without gaps, and runs are sorted, so equivalent
//! states become equal.
//!
//! This is sound, because the planner only compares ages and distinguishes names, and both are preserved.

use std::rc::Rc;

use super::state::*;

/// Numbers in use, and their new values.
#[derive(Default)]
struct Numbers(u64);

impl Numbers {
    fn add(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    fn new_number(&self, number: u8) -> u8 {
        (self.0 & ((1 << number) - 1)).count_ones() as u8
    }

    fn has_gaps(&self) -> bool {
        self.0 & (self.0 + 1) != 0
    }
}

#[derive(Default)]
struct Renumbering {
    uids: Numbers,
    names: Numbers,
}

/// Converts a state to its canonical form. Names that are ordinals do not change.
pub fn renumber(state: &mut State, names_are_ordinals: bool) {
    if !state.runs.now.is_sorted_by(|a, b| a.id.key() <= b.id.key()) {
        Rc::make_mut(&mut state.runs.now).sort_by(|a, b| a.id.key().cmp(&b.id.key()));
    }
    let mut numbers = Renumbering::default();
    numbers.collect(state);
    if names_are_ordinals {
        numbers.names = Numbers(u64::from(u32::MAX));
    }
    if numbers.uids.has_gaps() || numbers.names.has_gaps() || numbers.has_stale_waits(state) {
        numbers.apply(state);
    }
}

impl RunId {
    fn key(&self) -> impl Ord {
        (
            self.point,
            self.name,
            self.pod,
            self.rev,
            self.target,
            self.sidecars,
            self.changes,
            self.hook,
            self.generation,
        )
    }
}

impl Renumbering {
    fn collect(&mut self, state: &State) {
        let before = match &state.pods.seen {
            Seen::Before(pods) => pods.as_slice(),
            _ => &[],
        };
        for pod in state.pods.now.iter().chain(before) {
            self.uids.add(pod.uid);
            self.names.add(pod.name);
        }
        if let Seen::Before(pods) = &state.allotter.pods {
            for pod in pods.iter() {
                self.uids.add(pod.uid);
                self.names.add(pod.name);
            }
        }
        for write in &state.allotter.writes {
            self.uids.add(write.pod);
        }
        if let Some(judged) = &state.allotter.judged {
            self.uids.0 |= u64::from(judged.matched);
        }
        let before = match &state.runs.seen {
            Seen::Before(runs) => runs.as_slice(),
            _ => &[],
        };
        for run in state.runs.now.iter().chain(before) {
            self.collect_run(&run.id);
        }
        self.collect_workload(&state.workload.now);
        if let Seen::Before(workload) = &state.workload.seen {
            self.collect_workload(workload);
        }
        let Some(reconcile) = &state.operator.reconcile else {
            return;
        };
        self.collect_workload(&reconcile.planned);
        reconcile.judged.iter().for_each(|it| self.collect_workload(it));
        self.uids.0 |= u64::from(reconcile.seen_ready | reconcile.touched);
        for write in reconcile.before.iter().chain(&reconcile.after) {
            match write {
                Write::CreateRun(id) | Write::DeleteRun(id) => self.collect_run(id),
                Write::Workload(change) => {
                    let pods_to_delete = change.pods_to_delete.iter().flatten();
                    pods_to_delete.for_each(|name| self.names.add(*name));
                }
                other => {
                    pod_of(other).into_iter().for_each(|uid| self.uids.add(uid));
                    if let Some((_, Unchanged::Since(pod))) = other.unchanged() {
                        self.names.add(pod.name);
                    }
                }
            }
        }
    }

    fn collect_run(&mut self, id: &RunId) {
        if let Some(uid) = id.pod {
            self.uids.add(uid);
            self.names.add(id.name);
        }
    }

    fn collect_workload(&mut self, workload: &Workload) {
        workload.pods_to_delete.iter().for_each(|name| self.names.add(*name));
    }

    /// Whether a status lists a pod that nothing else refers to.
    fn has_stale_waits(&self, state: &State) -> bool {
        let is_stale = |(uid, _): &(Uid, Time)| self.uids.0 & (1 << uid) == 0;
        let has = |workload: &Workload| workload.waits.iter().any(is_stale);
        let mut reconcile = state.operator.reconcile.iter();
        let is_planned_stale = reconcile.any(|it| {
            it.waits.iter().any(is_stale)
                || has(&it.planned)
                || it.judged.iter().any(|judged| has(judged))
        });
        let before = match &state.workload.seen {
            Seen::Before(workload) => has(workload),
            _ => false,
        };
        is_planned_stale || before || has(&state.workload.now)
    }

    /// Renumbers waits. Those of deleted pods that nothing else refers to are dropped.
    fn renumber_waits(&self, waits: &mut Vec<(Uid, Time)>) {
        waits.retain(|(uid, _)| self.uids.0 & (1 << uid) != 0);
        for (uid, _) in waits {
            *uid = self.uids.new_number(*uid);
        }
    }

    fn apply(&self, state: &mut State) {
        let renumber_kind = |kind: &mut Kind<Vec<Pod>>| {
            self.renumber_pods(Rc::make_mut(&mut kind.now));
            if let Seen::Before(pods) = &mut kind.seen {
                self.renumber_pods(Rc::make_mut(pods));
            }
        };
        renumber_kind(&mut state.pods);
        if let Seen::Before(pods) = &mut state.allotter.pods {
            self.renumber_pods(Rc::make_mut(pods));
        }
        for write in &mut state.allotter.writes {
            write.pod = self.uids.new_number(write.pod);
        }
        if let Some(judged) = &mut state.allotter.judged {
            judged.matched = self.renumber_bits(judged.matched);
            judged.counted = self.renumber_bits(judged.counted);
            judged.charged = self.renumber_bits(judged.charged);
        }
        for run in Rc::make_mut(&mut state.runs.now) {
            self.renumber_run(&mut run.id);
        }
        if let Seen::Before(runs) = &mut state.runs.seen {
            for run in Rc::make_mut(runs) {
                self.renumber_run(&mut run.id);
            }
        }
        self.renumber_workload(&mut state.workload.now);
        if let Seen::Before(workload) = &mut state.workload.seen {
            self.renumber_workload(workload);
        }
        if let Some(reconcile) = &mut state.operator.reconcile {
            self.renumber_reconcile(Rc::make_mut(reconcile));
        }
    }

    fn renumber_pods(&self, pods: &mut Vec<Pod>) {
        for pod in pods {
            pod.uid = self.uids.new_number(pod.uid);
            pod.name = self.names.new_number(pod.name);
        }
    }

    fn renumber_unchanged(&self, seen: &mut Unchanged) {
        if let Some(pod) = seen.pod_mut() {
            pod.uid = self.uids.new_number(pod.uid);
            pod.name = self.names.new_number(pod.name);
        }
    }

    fn renumber_run(&self, id: &mut RunId) {
        if let Some(uid) = &mut id.pod {
            *uid = self.uids.new_number(*uid);
            id.name = self.names.new_number(id.name);
        }
    }

    fn renumber_workload(&self, workload: &mut Rc<Workload>) {
        if !workload.waits.is_empty() {
            self.renumber_waits(&mut Rc::make_mut(workload).waits);
        }
        if !workload.pods_to_delete.is_empty() {
            for name in &mut Rc::make_mut(workload).pods_to_delete {
                *name = self.names.new_number(*name);
            }
        }
    }

    fn renumber_reconcile(&self, reconcile: &mut Reconcile) {
        self.renumber_waits(&mut reconcile.waits);
        self.renumber_workload(&mut reconcile.planned);
        reconcile.judged.iter_mut().for_each(|it| self.renumber_workload(it));
        reconcile.seen_available = self.renumber_bits(reconcile.seen_available);
        reconcile.seen_ready = self.renumber_bits(reconcile.seen_ready);
        reconcile.touched = self.renumber_bits(reconcile.touched);
        for write in reconcile.before.iter_mut().chain(&mut reconcile.after) {
            match write {
                Write::CreateRun(id) | Write::DeleteRun(id) => self.renumber_run(id),
                Write::Workload(change) => {
                    for name in change.pods_to_delete.iter_mut().flatten() {
                        *name = self.names.new_number(*name);
                    }
                }
                Write::Patch(patch) => {
                    patch.pod = self.uids.new_number(patch.pod);
                    self.renumber_unchanged(&mut patch.unchanged);
                }
                Write::CloseGate(uid, _, next_patch, seen) => {
                    *uid = self.uids.new_number(*uid);
                    for patch in next_patch.iter_mut() {
                        patch.pod = *uid;
                        self.renumber_unchanged(&mut patch.unchanged);
                    }
                    self.renumber_unchanged(seen);
                }
                Write::DeletePod(uid, _, seen) | Write::Finish(uid, _, seen) => {
                    *uid = self.uids.new_number(*uid);
                    self.renumber_unchanged(seen);
                }
                Write::Mark(uid, _)
                | Write::Unmark(uid)
                | Write::OpenGate(uid)
                | Write::Adopt(uid)
                | Write::RequestMove(uid, _)
                | Write::Label(uid, _) => *uid = self.uids.new_number(*uid),
                Write::CreateRevision(_)
                | Write::RenumberRevision(_)
                | Write::DeleteRevision(_)
                | Write::DryRun(_)
                | Write::Budget(_)
                | Write::CreatePod { .. } => {}
            }
        }
    }

    /// Renumbers a bit set of uids. Uids of deleted pods that nothing else refers to are dropped.
    fn renumber_bits(&self, bits: u32) -> u32 {
        let kept = (0..32).filter(|uid| bits & (1 << uid) != 0 && self.uids.0 & (1 << uid) != 0);
        kept.fold(0, |all, uid| all | 1 << self.uids.new_number(uid))
    }
}

/// The uid of the pod that a write is about. None if the write is about no pod, or creates one.
pub fn pod_of(write: &Write) -> Option<Uid> {
    match write {
        Write::DeletePod(uid, ..)
        | Write::Mark(uid, _)
        | Write::Unmark(uid)
        | Write::CloseGate(uid, ..)
        | Write::OpenGate(uid)
        | Write::Finish(uid, ..)
        | Write::Adopt(uid)
        | Write::RequestMove(uid, _)
        | Write::Label(uid, _) => Some(*uid),
        Write::Patch(patch) => Some(patch.pod),
        Write::CreateRun(id) | Write::DeleteRun(id) => id.pod,
        _ => None,
    }
}
