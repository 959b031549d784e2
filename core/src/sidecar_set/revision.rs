//! Which revision of a SidecarSet new pods get: the newest one, unless the user has chosen another one, or the update
//! strategy holds the newest one back. The choice is a function of the set and its ControllerRevisions alone, so the
//! plans of all workloads and all replicas of the webhook decide alike.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};

use super::matched::MatchedPod;
use super::set::Sidecars;
use crate::api::{SidecarSet, SidecarSetStatus, SidecarUpdateType};
use crate::observed::limits;
use crate::revision::canonical;

/// A ControllerRevision of a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetRevision {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Number; the newest revision has the highest one.
    pub number: i64,
    /// What it injects: containers, init containers, volumes, pull secrets and annotations.
    pub content: Value,
}

impl SetRevision {
    /// The newest of these revisions that has this content, apart from defaults of the API server.
    pub(super) fn with_content<'r>(
        content: &Value,
        revisions: &'r [Arc<Self>],
    ) -> Option<&'r Arc<Self>> {
        // The lists have the names that they have in the spec of a pod.
        let in_pod = |content: &Value| canonical(&json!({"spec": content}));
        let wanted = LazyCell::new(|| in_pod(content));
        let same =
            revisions.iter().filter(|it| it.content == *content || in_pod(&it.content) == *wanted);
        same.max_by_key(|it| it.number)
    }
}

/// The revision that new pods get.
#[derive(Clone, Debug)]
pub(super) enum NewPods {
    /// The newest one.
    Newest,
    /// Another one.
    Older {
        /// The set as it was at that revision.
        set: Arc<Sidecars>,
        because: Because,
        /// Pods with these labels get the newest one.
        except: Option<Selector>,
    },
    /// The newest one, because the ControllerRevision of the revision that they should get is lost.
    Lost { revision: String, because: Because },
}

/// Why new pods do not get the newest revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// The user has chosen another one.
    Pinned,
    /// The update strategy holds the newest one back.
    Held,
}

impl NewPods {
    /// The set at the older revision that a pod with these labels gets; None if it gets the newest one.
    pub(super) fn older(&self, labels: &BTreeMap<String, String>) -> Option<&Sidecars> {
        match self {
            NewPods::Older { set, except, .. } => {
                let is_excepted = except.as_ref().is_some_and(|it| it.matches(labels));
                (!is_excepted).then_some(set)
            }
            NewPods::Newest | NewPods::Lost { .. } => None,
        }
    }

    /// A string that identifies what new pods get.
    pub(super) fn identity(&self, newest: &str) -> String {
        match self {
            NewPods::Older { set, except: Some(_), .. } => format!("{} {newest}", set.revision),
            NewPods::Older { set, .. } => set.revision.clone(),
            NewPods::Newest | NewPods::Lost { .. } => newest.to_owned(),
        }
    }

    /// Says which revision new pods get, as a part of a sentence.
    pub(super) fn in_words(&self) -> Option<String> {
        const PIN: &str = "spec.injectionStrategy.revision";
        const HOLD: &str = "spec.updateStrategy holds the newest one back";
        Some(match self {
            NewPods::Newest => return None,
            NewPods::Older { set, because: Because::Pinned, .. } => {
                format!("of revision {}, which {PIN} names", set.revision)
            }
            NewPods::Older { set, .. } => {
                format!("of revision {}, because {HOLD}", set.revision)
            }
            NewPods::Lost { revision, because: Because::Pinned } => format!(
                "of the newest revision, because the ControllerRevision {revision} that {PIN} names is lost"
            ),
            NewPods::Lost { revision, .. } => format!(
                "of the newest revision, although {HOLD}, because the ControllerRevision {revision} is lost"
            ),
        })
    }

    /// Whether the revision that new pods should get is lost.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, NewPods::Lost { .. })
    }
}

/// The revision that new pods of a set get.
pub(super) fn choose(
    newest: &Sidecars,
    set: &SidecarSet,
    revisions: &[Arc<SetRevision>],
) -> NewPods {
    let find = |name: &str| revisions.iter().find(|it| it.name == name);
    let (name, because) = match set.spec.injection_strategy.pinned() {
        Some(name) => (name, Because::Pinned),
        None => match set.status.as_ref() {
            // The set is new: there is no stable revision yet.
            None => return NewPods::Newest,
            Some(status) => (status.stable_revision.as_str(), Because::Held),
        },
    };
    if name.is_empty() || name == newest.revision {
        return NewPods::Newest;
    }
    let older = find(name).map(|it| newest.at(it));
    let except = match (because, &set.status) {
        (Because::Held, Some(status)) => match hold(newest, status, older.as_ref()) {
            Hold::None => return NewPods::Newest,
            Hold::All => None,
            Hold::Except(selector) => Some(selector),
        },
        _ => None,
    };
    match older {
        Some(older) => NewPods::Older { set: Arc::new(older), because, except },
        None => NewPods::Lost { revision: name.to_owned(), because },
    }
}

/// The new pods from which the update strategy holds the newest revision back.
enum Hold {
    None,
    All,
    /// All except those with these labels.
    Except(Selector),
}

/// Decides which new pods do not get the newest revision. If the strategy's type is NotUpdate, running pods stay as
/// they are, and only new pods can show a change of the set. So all of them get it, whatever else the strategy says.
fn hold(newest: &Sidecars, status: &SidecarSetStatus, stable: Option<&Sidecars>) -> Hold {
    let strategy = &newest.update;
    if strategy.type_ == SidecarUpdateType::NotUpdate {
        return Hold::None;
    }
    if strategy.paused {
        return Hold::All;
    }
    if let Some(selector) = &strategy.selector {
        return Selector::try_from(selector.clone()).map_or(Hold::All, Hold::Except);
    }
    let Some(partition) = strategy.partition.as_ref().filter(|it| limits::keeps_pods(it)) else {
        return Hold::None;
    };
    let total = i64::from(status.matched_pods);
    // The counts may be those of an earlier revision.
    let updated = match status.latest_revision == newest.revision {
        true => i64::from(status.updated_pods),
        false => 0,
    };
    let gets_newest = match partition {
        // New pods get the newest revision as soon as this number of pods have an older one.
        IntOrString::Int(kept) => total - updated >= i64::from(*kept),
        // The number that a percentage stands for changes with each new pod. So new pods get the stable revision, and
        // only running pods are updated. If they cannot be updated in place, new pods get the newest revision until
        // enough pods have it.
        IntOrString::String(_) => {
            let total = total + 1;
            let can_change_in_place = stable.is_none_or(|stable| stable.shape == newest.shape);
            !can_change_in_place && updated < total - limits::partition(Some(partition), total)
        }
    };
    match gets_newest {
        true => Hold::None,
        false => Hold::All,
    }
}

/// The revision that most of a set's pods have. If the newest revision ties with an older one, the older one is chosen.
/// Pods at the newest revision count only if they are ready, because that revision may be what keeps the others from
/// becoming ready. If the set has no pods, the stable revision stays as it was.
pub(super) fn stable_revision(
    newest: &Sidecars,
    pods: &[MatchedPod],
    old: Option<&SidecarSetStatus>,
) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        if let Some(mark) = pod.mark(newest) {
            let is_counted = pod.is_ready() || mark.revision != newest.revision;
            *counts.entry(&mark.revision).or_default() += usize::from(is_counted);
        }
    }
    let most_common =
        counts.into_iter().max_by_key(|(name, count)| (*count, *name != newest.revision));
    match most_common {
        Some((name, _)) => name.to_owned(),
        None => old.map(|old| old.stable_revision.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
