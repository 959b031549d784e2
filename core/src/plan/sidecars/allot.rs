//! Which pods a SidecarSet allows to be updated.
//!
//! A pod of our workloads gets a token, which is part of its mark. Its workload updates it when its hook and budget
//! allow that, and the same patch removes the token. A token that a workload does not use is withdrawn, and another
//! pod gets one. The patch tests the token, so a withdrawal and an update cannot both succeed. Pods of other
//! controllers have neither hook nor gate; the set updates them itself.

use jiff::{SignedDuration, Timestamp};
use kube::core::{Selector, SelectorExt};

use super::matched::{Changing, MatchedPod, RefusedWrite};
use super::set::Sidecars;
use crate::api::SidecarUpdateType;
use crate::plan::limits;
use crate::plan::observed::SidecarMark;
use crate::plan::time::whole_seconds;

/// How long a pod keeps a token that its workload does not use, if other pods wait.
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
    /// Its mark, a precondition.
    pub from: &'a SidecarMark,
    /// The new mark.
    pub to: SidecarMark,
    /// Whether the containers get their new images by the same write.
    pub updates: bool,
}

/// The progress of an update.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// Pods that have the containers.
    pub matched: usize,
    /// Those of them with the newest containers.
    pub updated: usize,
    /// Pods to update, as far as selector and partition choose them.
    pub wanted: usize,
    /// Pods that cannot be changed while they run.
    pub not_in_place: Vec<String>,
    /// Pods whose kubelet would ignore the change.
    pub ignored: Vec<String>,
    /// Pods whose workload has had a token for some time without using it.
    pub waiting: Vec<String>,
    /// Pods whose update the API server refuses, each with its message.
    pub refused: Vec<String>,
}

/// A pod that has the set's containers.
struct MarkedPod<'a> {
    pod: &'a MatchedPod,
    mark: &'a SidecarMark,
}

impl<'a> MarkedPod<'a> {
    /// Whether its update to the newest revision takes a slot: it is not complete, or the pod is not ready after it.
    /// A token that is left over takes a slot until it is withdrawn, because the workload may have begun to use it.
    fn is_busy(&self) -> bool {
        self.pod.changing != Changing::No || !self.pod.ready || self.mark.token.is_some()
    }

    /// Whether the update of an old pod has begun, to the newest revision or an earlier one. Then it takes a slot,
    /// even if the pod is no longer ready.
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

    /// When its token is passed on if another pod waits; None while it is being used.
    fn passed_on_at(&self) -> Option<Timestamp> {
        let since = self
            .mark
            .token_since
            .filter(|_| self.pod.changing == Changing::No);
        since?.checked_add(TOKEN_TIME).ok()
    }

    /// The order in which pods get tokens: those that are not ready first, because they need no slot, then those that
    /// have waited longest. Pods whose last write was refused come last.
    fn rank(&self) -> (bool, bool, Option<Timestamp>, &'a str, &'a str) {
        let MatchedPod {
            namespace,
            name,
            ready,
            refused,
            ..
        } = self.pod;
        (
            refused.is_some(),
            *ready,
            self.mark.token_since,
            namespace,
            name,
        )
    }

    /// The write that allows its update or, if no workload of ours controls it, updates it.
    fn start(&self, set: &Sidecars, now: Timestamp) -> MarkWrite<'a> {
        let Self { pod, mark } = *self;
        let to = match pod.own {
            true => SidecarMark {
                token: Some(set.revision.clone()),
                token_since: Some(whole_seconds(now)),
                ..mark.clone()
            },
            false => mark.updated_to(&set.revision),
        };
        MarkWrite {
            pod,
            from: mark,
            to,
            updates: !pod.own,
        }
    }

    fn withdraw(&self) -> MarkWrite<'a> {
        MarkWrite {
            pod: self.pod,
            from: self.mark,
            to: SidecarMark {
                token: None,
                ..self.mark.clone()
            },
            updates: false,
        }
    }
}

/// Decides for a set and all pods that it selects.
pub fn allot<'a>(set: &Sidecars, pods: &'a [MatchedPod], now: Timestamp) -> Allotment<'a> {
    let matched = pods.iter().filter_map(|pod| {
        let mark = pod.mark(set)?;
        Some(MarkedPod { pod, mark })
    });
    let (new, old): (Vec<_>, Vec<_>) = matched.partition(|it| set.is_newest_in(it.mark));
    let total = (new.len() + old.len()) as i64;
    let mut progress = Progress {
        matched: new.len() + old.len(),
        updated: new.len(),
        ..Progress::default()
    };
    // After a revert, an unused token may be left on a pod that has the newest containers again.
    let left = new.iter().filter(|it| it.mark.token.is_some());
    let mut writes: Vec<_> = left.map(MarkedPod::withdraw).collect();
    let (mut holders, mut waiting) = (Vec::new(), Vec::new());
    let begun = old.iter().filter(|it| it.has_begun()).count();
    let mut busy = begun + new.iter().filter(|it| it.is_busy()).count();
    let chosen = chosen_by(set);
    for candidate in old {
        let MarkedPod { pod, mark } = candidate;
        let may_change = chosen(pod) && progress.can_change(set, pod, mark) && !pod.is_refused(now);
        match &mark.token {
            Some(token) if may_change && *token == set.revision => holders.push(candidate),
            // It gets another token once this one is withdrawn. Until then its workload may have begun to use it.
            Some(_) => {
                busy += usize::from(candidate.needs_slot() && !candidate.has_begun());
                writes.push(candidate.withdraw());
            }
            None if may_change => waiting.push(candidate),
            None => {}
        }
    }
    let kept = limits::partition(set.update.partition.as_ref(), total);
    let mut room = Room {
        pods: total - kept - new.len() as i64,
        slots: limits::at_least_one(set.update.max_unavailable.as_ref(), total) - busy as i64,
    };
    let accepted = waiting.iter().filter(|it| it.pod.refused.is_none());
    progress.wanted = usize::try_from(room.pods)
        .unwrap_or(0)
        .min(holders.len() + accepted.count());
    holders.sort_by_key(|it| (it.pod.changing == Changing::No, it.rank()));
    waiting.sort_by_key(MarkedPod::rank);
    holders.retain(|it| {
        let keeps = room.take(it) || it.pod.changing != Changing::No;
        if !keeps {
            writes.push(it.withdraw());
        }
        keeps
    });
    waiting.retain(|it| {
        let starts = room.take(it);
        if starts {
            writes.push(it.start(set, now));
        }
        !starts
    });
    let is_unused = |it: &&MarkedPod| it.passed_on_at().is_some_and(|at| at <= now);
    let unused = holders.iter().filter(is_unused);
    progress.waiting = unused.clone().map(|it| it.pod.full_name()).collect();
    writes.extend(unused.take(waiting.len()).map(MarkedPod::withdraw));
    writes.retain(|it| !it.pod.is_refused(now));
    let next = holders.iter().filter_map(MarkedPod::passed_on_at);
    let retries = pods
        .iter()
        .filter_map(|it| Some(it.refused.as_ref()?.retry_at));
    let next = next.chain(retries);
    let next = next.chain(pods.iter().filter_map(|it| it.look_again));
    let wake = next.filter(|at| *at > now).min();
    Allotment {
        writes,
        progress,
        wake,
    }
}

/// What is left of the limits.
struct Room {
    /// Pods that may be updated.
    pods: i64,
    /// Pods whose update may be in progress.
    slots: i64,
}

impl Room {
    /// Takes room for a pod, if there is any. A pod whose update has begun already has its slot.
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
    /// Whether a running pod can be changed to the newest revision. If it cannot, records why.
    fn can_change(&mut self, set: &Sidecars, pod: &MatchedPod, mark: &SidecarMark) -> bool {
        if mark.shape != set.shape {
            self.not_in_place.push(pod.full_name());
            return false;
        }
        if pod.kubelet_ignores {
            self.ignored.push(pod.full_name());
            return false;
        }
        if let Some(RefusedWrite { message, .. }) = &pod.refused {
            self.refused.push(format!("{}: {message}", pod.full_name()));
        }
        true
    }
}

/// The pods that the set's strategy chooses: all if it has no selector, and none if it does not update running pods
/// now.
fn chosen_by(set: &Sidecars) -> impl Fn(&MatchedPod) -> bool {
    let strategy = &set.update;
    let is_rolling = strategy.type_ == SidecarUpdateType::RollingUpdate && !strategy.paused;
    let selector = strategy.selector.clone().map(Selector::try_from);
    move |pod| {
        is_rolling
            && match &selector {
                None => true,
                Some(Ok(selector)) => selector.matches(&pod.labels),
                Some(Err(_)) => false,
            }
    }
}

#[cfg(test)]
mod tests;
