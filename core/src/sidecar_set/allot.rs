//! Which pods a SidecarSet allows to be updated.
//!
//! A pod of our workloads gets a token, which is part of its mark. Its workload updates the pod when hook and budget
//! allow that, and the same patch removes the token. A token that a workload does not use is withdrawn, and another
//! pod gets one; a pod keeps its token while its hook runs. Pods of a workload that currently updates no sidecars get
//! no tokens. The patch that updates a pod tests the token, so a withdrawal and an update cannot both succeed. Pods of
//! other controllers have neither hook nor gate; the set updates them itself.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::held::Held;
use super::matched::{Changing, MatchedPod, RefusedWrite, TokenHook};
use super::set::Sidecars;
use crate::api::SidecarUpdateType;
use crate::observed::SidecarMark;
use crate::observed::limits;
use crate::observed::time::rounded_up;

/// How long a pod keeps an unused token while other pods wait, unless its hook runs.
const TOKEN_TIME: SignedDuration = SignedDuration::from_secs(30);

/// What a set does with its pods now.
#[derive(Debug, Default)]
pub struct Allotment<'a> {
    /// The writes.
    pub writes: Vec<MarkWrite<'a>>,
    /// The progress of the update.
    pub progress: Progress,
    /// When to plan again, even if nothing changes until then.
    pub wake: Option<Timestamp>,
}

/// A new mark for a pod.
#[derive(Debug)]
pub struct MarkWrite<'a> {
    /// The pod.
    pub pod: &'a MatchedPod,
    /// The pod's current mark, which is a precondition of the write.
    pub from: &'a SidecarMark,
    /// The new mark.
    pub to: SidecarMark,
    /// Whether the containers get their new images in the same write.
    pub updates: bool,
}

/// The progress of an update.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// Pods that have the containers.
    pub matched: usize,
    /// Those of them with the newest containers.
    pub updated: usize,
    /// Pods to update, within the limits of the selector and the partition.
    pub wanted: usize,
    /// Pods that cannot be changed while they run.
    pub not_in_place: Vec<String>,
    /// Pods whose kubelet would ignore the change.
    pub ignored: Vec<String>,
    /// Pods that were hot-patched.
    pub hot_patched: Vec<String>,
    /// Pods whose workload has had a token for some time without using it.
    pub waiting: Vec<String>,
    /// Pods whose update the API server refuses, each with the API server's message.
    pub refused: Vec<String>,
    /// Workloads that hold back pods that would otherwise be updated, and why.
    pub held: BTreeSet<String>,
}

/// A pod that has the set's containers.
#[derive(Clone, Copy)]
struct MarkedPod<'a> {
    pod: &'a MatchedPod,
    mark: &'a SidecarMark,
}

impl<'a> MarkedPod<'a> {
    /// Whether the pod's update to the newest revision takes a slot: the update is not complete, or the pod is not
    /// ready after it. A token that is left over takes a slot until it is withdrawn, because the workload may have
    /// begun to use it.
    fn is_busy(&self) -> bool {
        self.pod.changing != Changing::No || !self.pod.ready || self.mark.token.is_some()
    }

    /// Whether the update of an old pod has begun, to the newest revision or an earlier one. An update that has begun
    /// takes a slot, even if the pod is no longer ready.
    fn has_begun(&self) -> bool {
        match self.pod.changing {
            Changing::Sidecars => true,
            Changing::Begins => self.mark.token.is_some(),
            Changing::No | Changing::Others => false,
        }
    }

    /// Whether the update of an old pod takes a slot. Pods that are not ready need none, unless the update is why
    /// they are not ready.
    fn needs_slot(&self) -> bool {
        self.pod.ready || self.has_begun() || self.pod.changing == Changing::Begins
    }

    /// The pod's workload, if it holds back updates of the pod's sidecars. An update of the game that has begun at a
    /// canary step is not extended to sidecars, because its hook would have to run again.
    fn held_by(&self) -> Option<&'a Held> {
        let MatchedPod { held, ready, changing, .. } = self.pod;
        let is_game_update = match changing {
            Changing::Begins => self.mark.token.is_none(),
            Changing::Others => true,
            Changing::No | Changing::Sidecars => false,
        };
        let held = held.as_deref()?;
        held.by.holds(*ready || is_game_update).then_some(held)
    }

    /// When the token will have been unused for `TOKEN_TIME`; None while the workload uses it.
    fn late_at(&self) -> Option<Timestamp> {
        let since = self.mark.token_since;
        let since = since.filter(|_| self.pod.changing == Changing::No);
        since?.checked_add(TOKEN_TIME).ok()
    }

    /// When the token is passed on if another pod waits; None while the workload uses it, or while the hook runs: a
    /// hook may measure for longer than an unused token is kept, and would otherwise have to start over.
    fn passed_on_at(&self) -> Option<Timestamp> {
        let late = self.late_at()?;
        match self.pod.hook {
            TokenHook::Running => None,
            TokenHook::Passed(at) => Some(late.max(at.checked_add(TOKEN_TIME).ok()?)),
            TokenHook::None | TokenHook::Refused => Some(late),
        }
    }

    /// The order in which pods get tokens: those that are not ready first, because they need no slot, then those that
    /// have waited longest. Pods whose last write was refused come last.
    fn rank(&self) -> (bool, bool, Option<Timestamp>, &'a str, &'a str) {
        let MatchedPod { namespace, name, ready, refused, .. } = self.pod;
        (refused.is_some(), *ready, self.mark.token_since, namespace, name)
    }

    /// The write that allows the pod's update, or that updates the pod if no workload of ours controls it.
    fn start(&self, set: &Sidecars, now: Timestamp) -> MarkWrite<'a> {
        let Self { pod, mark } = *self;
        let to = match pod.own {
            true => SidecarMark {
                token: Some(set.revision.clone()),
                token_since: Some(rounded_up(now)),
                ..mark.clone()
            },
            false => mark.updated_to(&set.revision),
        };
        MarkWrite { pod, from: mark, to, updates: !pod.own }
    }

    fn withdraw(&self) -> MarkWrite<'a> {
        MarkWrite {
            pod: self.pod,
            from: self.mark,
            to: SidecarMark { token: None, ..self.mark.clone() },
            updates: false,
        }
    }
}

/// Decides what a set does with these pods now.
pub fn allot<'a>(set: &Sidecars, pods: &'a [MatchedPod], now: Timestamp) -> Allotment<'a> {
    let matched = pods.iter().filter_map(|pod| {
        let mark = pod.mark(set)?;
        Some(MarkedPod { pod, mark })
    });
    let (new, old): (Vec<_>, Vec<_>) = matched.partition(|it| set.is_applied_to(it.mark));
    let total = (new.len() + old.len()) as i64;
    let mut progress =
        Progress { matched: new.len() + old.len(), updated: new.len(), ..Progress::default() };
    let mut writes = withdraw_left_over(set, pods, &new);
    let updates_begun = old.iter().filter(|it| it.has_begun()).count();
    let mut busy = updates_begun + new.iter().filter(|it| it.is_busy()).count();
    let mut candidates = Candidates::of(set, old, &mut progress, now);
    // Tokens that are being withdrawn also take slots, because their workloads may have begun to use them.
    let takes_slot = |it: &&MarkedPod| it.needs_slot() && !it.has_begun();
    busy += candidates.void.iter().filter(takes_slot).count();
    writes.extend(candidates.void.iter().map(MarkedPod::withdraw));
    let kept = limits::partition(set.update.partition.as_ref(), total);
    let usable = candidates.void.iter();
    let usable = usable.filter(|it| it.mark.allows(&set.revision));
    let room = Room {
        pods: total - kept - (new.len() + usable.count()) as i64,
        slots: limits::at_least_one(set.update.max_unavailable.as_ref(), total) - busy as i64,
    };
    let wanted = usize::try_from(room.pods).unwrap_or(0);
    if wanted == 0 {
        progress.forget_obstacles();
    }
    let accepted = candidates.eligible.iter().filter(|it| it.pod.refused.is_none());
    let possible = candidates.holders.len() + accepted.count() + candidates.renewable;
    progress.wanted = wanted.min(possible);
    if wanted > possible {
        progress.held = std::mem::take(&mut candidates.held);
    }
    writes.extend(candidates.take(room, set, now));
    writes.extend(candidates.pass_on(now));
    progress.waiting = candidates.late(now);
    writes.retain(|it| !it.pod.is_refused(now));
    let retries = pods.iter().filter_map(|it| Some(it.refused.as_ref()?.retry_at));
    let rechecks = pods.iter().filter_map(|it| it.look_again);
    let next = candidates.deadlines().chain(retries).chain(rechecks);
    Allotment { writes, progress, wake: next.filter(|at| *at > now).min() }
}

/// Withdraws tokens that are left on pods that have the newest containers again, after a revert, and on pods that the
/// set no longer selects.
fn withdraw_left_over<'a>(
    set: &Sidecars,
    pods: &'a [MatchedPod],
    new: &[MarkedPod<'a>],
) -> Vec<MarkWrite<'a>> {
    let deselected = pods.iter().filter(|pod| pod.deselected);
    let deselected = deselected.filter_map(|pod| {
        let mark = pod.marks.get(&set.name)?;
        Some(MarkedPod { pod, mark })
    });
    let all = deselected.chain(new.iter().copied());
    let with_token = all.filter(|it| it.mark.token.is_some());
    with_token.map(|it| it.withdraw()).collect()
}

/// The pods that do not have the newest containers.
#[derive(Default)]
struct Candidates<'a> {
    /// Those that may keep their tokens for the newest revision.
    holders: Vec<MarkedPod<'a>>,
    /// Those that may get a token.
    eligible: Vec<MarkedPod<'a>>,
    /// Those whose tokens are withdrawn. They can get another one after that.
    void: Vec<MarkedPod<'a>>,
    /// How many of those whose tokens are withdrawn will get another one, as far as there is room.
    renewable: usize,
    /// The workloads that hold back other pods, and why.
    held: BTreeSet<String>,
}

impl<'a> Candidates<'a> {
    fn of(
        set: &Sidecars,
        old: Vec<MarkedPod<'a>>,
        progress: &mut Progress,
        now: Timestamp,
    ) -> Self {
        let is_chosen = chosen_by(set);
        let mut all = Self::default();
        for candidate in old {
            let MarkedPod { pod, mark } = candidate;
            let is_wanted = is_chosen(pod) && progress.can_change(set, pod, mark);
            let held = candidate.held_by().filter(|_| is_wanted);
            all.held.extend(held.map(Held::to_string));
            let may_change = is_wanted && held.is_none();
            match &mark.token {
                // Only workloads use tokens; the pod may have lost its workload.
                Some(_) if may_change && pod.own && mark.allows(&set.revision) => {
                    all.holders.push(candidate);
                }
                Some(_) => {
                    all.renewable += usize::from(may_change && pod.refused.is_none());
                    all.void.push(candidate);
                }
                None if may_change && !pod.is_refused(now) => all.eligible.push(candidate),
                None => {}
            }
        }
        all
    }

    /// Keeps tokens, and gives new ones, as far as there is room.
    fn take(&mut self, mut room: Room, set: &Sidecars, now: Timestamp) -> Vec<MarkWrite<'a>> {
        let mut writes = Vec::new();
        self.holders.sort_by_key(|it| (it.pod.changing == Changing::No, it.rank()));
        self.eligible.sort_by_key(MarkedPod::rank);
        self.holders.retain(|it| {
            let keeps = room.take(it) || it.pod.changing != Changing::No;
            if !keeps {
                writes.push(it.withdraw());
            }
            keeps
        });
        self.eligible.retain(|it| {
            let starts = room.take(it);
            if starts {
                writes.push(it.start(set, now));
            }
            !starts
        });
        writes
    }

    /// Withdraws one unused token for each pod that waits for one.
    fn pass_on(&self, now: Timestamp) -> impl Iterator<Item = MarkWrite<'a>> {
        let unused = self.holders.iter();
        let unused = unused.filter(move |it| it.passed_on_at().is_some_and(|at| at <= now));
        unused.take(self.eligible.len()).map(MarkedPod::withdraw)
    }

    /// The pods whose workload has had a token for some time without using it.
    fn late(&self, now: Timestamp) -> Vec<String> {
        let late = self.holders.iter();
        let late = late.filter(|it| it.late_at().is_some_and(|at| at <= now));
        late.map(|it| it.pod.full_name()).collect()
    }

    /// The times at which pods become late or pass their tokens on.
    fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        let holders = self.holders.iter();
        holders.flat_map(|it| [it.passed_on_at(), it.late_at()]).flatten()
    }
}

/// What is left of the limits.
struct Room {
    /// How many more pods may be updated.
    pods: i64,
    /// How many more updates may be in progress.
    slots: i64,
}

impl Room {
    /// Takes room for a pod, if there is any, and returns whether there was. A pod takes no second slot if its update
    /// has begun.
    fn take(&mut self, marked: &MarkedPod) -> bool {
        let slots = i64::from(marked.needs_slot() && !marked.has_begun());
        let fits = self.pods > 0 && (slots == 0 || self.slots >= slots);
        if fits {
            self.pods -= 1;
            self.slots -= slots;
        }
        fits
    }
}

impl Progress {
    /// Forgets why pods cannot be updated, because no pod has to be.
    fn forget_obstacles(&mut self) {
        self.not_in_place.clear();
        self.ignored.clear();
        self.hot_patched.clear();
        self.refused.clear();
    }

    /// Whether a running pod can be changed to the newest revision. Records what prevents that. A refused write is
    /// recorded too, although it does not prevent the change: it is tried again.
    fn can_change(&mut self, set: &Sidecars, pod: &MatchedPod, mark: &SidecarMark) -> bool {
        if mark.shape != set.shape {
            self.not_in_place.push(pod.full_name());
            return false;
        }
        if pod.kubelet_ignores {
            self.ignored.push(pod.full_name());
            return false;
        }
        if pod.hot_patched {
            self.hot_patched.push(pod.full_name());
            return false;
        }
        let refused = pod.refused.as_ref();
        if let Some(RefusedWrite { message, .. }) = refused.filter(|_| !mark.allows(&set.revision))
        {
            self.refused.push(format!("{}: {message}", pod.full_name()));
        }
        true
    }
}

/// The pods that the set's strategy chooses: none if it does not update running pods now.
fn chosen_by(set: &Sidecars) -> impl Fn(&MatchedPod) -> bool {
    let strategy = &set.update;
    let is_rolling = strategy.type_ == SidecarUpdateType::RollingUpdate && !strategy.paused;
    move |pod| is_rolling && set.chooses(&pod.labels)
}

#[cfg(test)]
mod tests;
