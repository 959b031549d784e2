//! How long it takes to look at workloads and to write their pods, for boards made for bk-bcs.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Refusal, Target};
use crate::plan::Action;

const BUCKETS: [f64; 11] = [
    0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0,
];

/// Durations by workload.
#[derive(Clone)]
pub struct Metrics {
    reconcile: Family<Looked, Histogram, fn() -> Histogram>,
    create: Family<Looked, Histogram, fn() -> Histogram>,
    update: Family<Written, Histogram, fn() -> Histogram>,
    delete: Family<Written, Histogram, fn() -> Histogram>,
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values as in bk-bcs")]
enum Ended {
    success,
    failure,
}

/// What was done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values as in bk-bcs")]
enum Done {
    deletePod,
    inplaceUpdate,
    hotpatchUpdate,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Looked {
    namespace: String,
    name: String,
    status: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    namespace: String,
    name: String,
    status: Ended,
    action: Done,
    grace: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        fn family<S: Clone + std::hash::Hash + Eq>() -> Family<S, Histogram, fn() -> Histogram> {
            Family::new_with_constructor(|| Histogram::new(BUCKETS))
        }
        Self {
            reconcile: family(),
            create: family(),
            update: family(),
            delete: family(),
        }
    }
}

fn ended(well: bool) -> Ended {
    if well { Ended::success } else { Ended::failure }
}

impl Metrics {
    /// Shows them under a prefix that names the kind of workload.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "reconcile_duration_seconds",
            "Time of one look at a workload",
            self.reconcile.clone(),
        );
        registry.register(
            "pod_create_duration_seconds",
            "Time of one creation of a pod",
            self.create.clone(),
        );
        registry.register(
            "pod_update_duration_seconds",
            "Time of one change of a running pod",
            self.update.clone(),
        );
        registry.register(
            "pod_delete_duration_seconds",
            "Time of one deletion of a pod",
            self.delete.clone(),
        );
    }

    /// Counts a look at a workload.
    pub fn reconciled(&self, namespace: &str, name: &str, well: bool, took: Duration) {
        let labels = looked(namespace, name, ended(well));
        self.reconcile
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// Counts a write.
    pub(super) fn wrote<T>(
        &self,
        target: &Target,
        action: &Action,
        answer: &Result<T, Refusal>,
        took: Duration,
    ) {
        let Target {
            namespace, name, ..
        } = target;
        let ended = ended(answer.is_ok());
        let took = took.as_secs_f64();
        let written = |action| written(namespace, name, ended, action);
        match action {
            Action::CreatePod(_) => {
                let labels = looked(namespace, name, ended);
                self.create.get_or_create(&labels).observe(took);
            }
            Action::DeletePod(_) => {
                let labels = written(Done::deletePod);
                self.delete.get_or_create(&labels).observe(took);
            }
            Action::PatchInPlace(patch) => {
                let labels = written(match patch.record.hot {
                    true => Done::hotpatchUpdate,
                    false => Done::inplaceUpdate,
                });
                self.update.get_or_create(&labels).observe(took);
            }
            _ => {}
        }
    }

    /// Forgets a workload that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        for ended in [Ended::success, Ended::failure] {
            self.reconcile.remove(&looked(namespace, name, ended));
            self.create.remove(&looked(namespace, name, ended));
            let written = |action| written(namespace, name, ended, action);
            self.delete.remove(&written(Done::deletePod));
            self.update.remove(&written(Done::inplaceUpdate));
            self.update.remove(&written(Done::hotpatchUpdate));
        }
    }
}

fn looked(namespace: &str, name: &str, status: Ended) -> Looked {
    Looked {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status,
    }
}

fn written(namespace: &str, name: &str, status: Ended, action: Done) -> Written {
    Written {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status,
        action,
        // bk-bcs tells deletions with a grace period of its own apart; there is none here.
        grace: false,
    }
}
