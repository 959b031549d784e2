//! Metrics of the workloads: their pods, and the progress of their rollouts.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;

use super::progress::{Progress, Snapshot};
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::WorkloadLabels;
use crate::runtime::metrics::encode_family;
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{
    ConditionType, GameDeployment, GameStatefulSet, GameWorkload, Reason, WorkloadStatus,
};

pub(super) struct Workload {
    key: WorkloadLabels,
    desired: i32,
    /// Pods at the stable revision; 0 for a GameDeployment.
    current: i32,
    status: WorkloadStatus,
    steps: usize,
    uid: String,
    /// By how many generations the status lags behind the spec.
    unobserved: i64,
    /// Seconds without progress.
    idle: f64,
}

pub(super) fn read(cache: &Cache, progress: &Progress, now: Timestamp) -> Vec<Workload> {
    let deployments = cache.game_deployments.store().all();
    let deployments = deployments.iter().map(|it| from_deployment(it));
    let sets = cache.game_stateful_sets.store().all();
    let sets = sets.iter().map(|it| from_set(it));
    let mut workloads: Vec<_> = deployments.chain(sets).collect();
    let snapshots: BTreeMap<_, _> = workloads.iter().map(Workload::snapshot).collect();
    let idle = progress.update(snapshots, now);
    for workload in &mut workloads {
        workload.idle = idle.get(&workload.key).copied().unwrap_or_default();
    }
    workloads
}

fn from_deployment(cached: &Whole<GameDeployment>) -> Workload {
    let status = cached.object.status.clone().unwrap_or_default();
    let desired = cached.object.spec.replicas.unwrap_or(1);
    workload(cached, desired, 0, status)
}

fn from_set(cached: &Whole<GameStatefulSet>) -> Workload {
    let status = cached.object.status.clone().unwrap_or_default();
    let desired = cached.object.spec.replicas.unwrap_or(1);
    workload(cached, desired, status.current_replicas, status.workload)
}

fn workload<K: GameWorkload>(
    cached: &Whole<K>,
    desired: i32,
    current: i32,
    status: WorkloadStatus,
) -> Workload {
    let generation = cached.object.meta().generation.unwrap_or_default();
    // A deletion increments the generation, but need not change the status.
    let unobserved = match cached.terminating() {
        true => 0,
        false => generation - status.observed_generation.clamp(0, generation),
    };
    Workload {
        key: WorkloadLabels {
            kind: K::KIND,
            namespace: cached.namespace().to_owned(),
            name: cached.name().to_owned(),
        },
        desired,
        current,
        status,
        steps: cached.object.canary().map_or(0, |it| it.steps.len()),
        uid: cached.uid().to_owned(),
        unobserved,
        idle: 0.0,
    }
}

impl Workload {
    fn labels(&self) -> [(&'static str, &str); 3] {
        labels(&self.key)
    }

    fn snapshot(&self) -> (WorkloadLabels, Snapshot) {
        let status = &self.status;
        let progressing = status.condition(ConditionType::Progressing);
        let reason = progressing.and_then(|it| Reason::parse(&it.reason));
        let paused = reason.is_some_and(Reason::is_pause);
        let (uid, revision) = (self.uid.clone(), status.update_revision.clone());
        let snapshot = Snapshot {
            target: (uid, revision, status.current_step_index),
            paused,
            desired: self.desired,
            existing: status.replicas,
            counts: [
                status.updated_replicas,
                status.updated_ready_replicas,
                status.available_replicas,
            ],
        };
        (self.key.clone(), snapshot)
    }

    /// Seconds since the workload stopped matching its spec; 0 while it matches, None while it has no condition
    /// Ready.
    fn age(&self, now: Timestamp) -> Option<f64> {
        let ready = self.status.condition(ConditionType::Ready)?;
        let since = now.duration_since(ready.last_transition_time.0);
        Some(match ready.status == "True" {
            true => 0.0,
            false => since.as_secs_f64().max(0.0),
        })
    }
}

/// The labels of a workload in metrics that bk-bcs does not have.
pub(super) fn labels(workload: &WorkloadLabels) -> [(&'static str, &str); 3] {
    [("kind", workload.kind.as_str()), ("namespace", &workload.namespace), ("name", &workload.name)]
}

type Count = fn(&Workload) -> i32;

const REPLICAS: [(&str, &str, Count); 4] = [
    ("replicas", "Desired pods", |it| it.desired),
    ("ready_replicas", "Ready pods", |it| it.status.ready_replicas),
    ("updated_replicas", "Pods at the update revision", |it| it.status.updated_replicas),
    ("updated_ready_replicas", "Pods at the update revision that are ready", |it| {
        it.status.updated_ready_replicas
    }),
];

const STATES: [(&str, Count); 6] = [
    ("desired", |it| it.desired),
    ("existing", |it| it.status.replicas),
    ("ready", |it| it.status.ready_replicas),
    ("available", |it| it.status.available_replicas),
    ("updated", |it| it.status.updated_replicas),
    ("updated_ready", |it| it.status.updated_ready_replicas),
];

pub(super) fn encode(
    workloads: &[Workload],
    now: Timestamp,
    to: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    for (kind, prefix) in [
        (WorkloadKind::GameDeployment, "bkbcs_gamedeployment"),
        (WorkloadKind::GameStatefulSet, "bkbcs_gamestatefulset"),
    ] {
        let mut counts = REPLICAS.to_vec();
        counts.push(match kind {
            WorkloadKind::GameDeployment => {
                ("available_replicas", "Pods that have been ready for minReadySeconds", |it| {
                    it.status.available_replicas
                })
            }
            WorkloadKind::GameStatefulSet => {
                ("current_replicas", "Pods at the stable revision", |it| it.current)
            }
        });
        for (name, help, count) in counts {
            let selected = workloads.iter().filter(|it| it.key.kind == kind);
            let rows = selected.map(|it| (it.key.clone(), f64::from(count(it))));
            encode_family(to, &format!("{prefix}_{name}"), help, rows)?;
        }
    }
    encode_state(workloads, to)?;
    encode_times(workloads, now, to)
}

fn encode_state(workloads: &[Workload], to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let pods = workloads.iter().flat_map(|it| {
        STATES.iter().map(|(state, count)| {
            let [kind, namespace, name] = it.labels();
            let labels = [kind, namespace, name, ("state", *state)];
            (labels, f64::from(count(it)))
        })
    });
    encode_family(to, "gamekeeper_pods", "Pods of a workload", pods)?;
    let with_steps = || workloads.iter().filter(|it| it.steps > 0);
    let step = with_steps().map(|it| {
        let step = it.status.current_step_index.unwrap_or_default();
        (it.labels(), f64::from(step))
    });
    let help = "Index of the canary step; the number of steps when all are completed";
    encode_family(to, "gamekeeper_rollout_step", help, step)?;
    let steps = with_steps().map(|it| (it.labels(), it.steps as f64));
    encode_family(to, "gamekeeper_rollout_steps", "Number of canary steps", steps)?;
    let states = workloads.iter().filter_map(|it| {
        let progressing = it.status.condition(ConditionType::Progressing)?;
        let reason = ("reason", progressing.reason.as_str());
        let [kind, namespace, name] = it.labels();
        Some(([kind, namespace, name, reason], 1.0))
    });
    let help = "1 for the reason of condition Progressing";
    encode_family(to, "gamekeeper_rollout_state", help, states)?;
    let causes = workloads.iter().flat_map(|it| {
        let counts = pods_by_cause(&it.status).into_iter();
        counts.map(|(reason, pods)| {
            let [kind, namespace, name] = it.labels();
            ([kind, namespace, name, ("reason", reason)], f64::from(pods))
        })
    });
    let help = "Pods that wait, by the reason in status.causes; 1 for a cause that concerns no pod";
    encode_family(to, "gamekeeper_causes", help, causes)?;
    let unobserved = workloads.iter().map(|it| (it.labels(), it.unobserved as f64));
    let help = "Generations of the spec that the status does not reflect yet";
    encode_family(to, "gamekeeper_unobserved_generations", help, unobserved)?;
    encode_guards(workloads, to)
}

/// The number of pods by the reason for which they wait. Several hook points may have the same reason.
fn pods_by_cause(status: &WorkloadStatus) -> BTreeMap<&str, i32> {
    let mut pods = BTreeMap::new();
    for cause in &status.causes {
        *pods.entry(cause.reason.as_str()).or_insert(0) += cause.pod_count.max(1);
    }
    pods
}

fn encode_guards(workloads: &[Workload], to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let pods = workloads.iter().flat_map(|it| {
        let protection = it.status.protection.as_ref();
        let counts = protection.map(|protection| {
            let waiting = i32::try_from(protection.waiting.len()).unwrap_or(i32::MAX);
            [("guarded", protection.guarded), ("moving", protection.moving), ("waiting", waiting)]
        });
        counts.into_iter().flatten().map(|(state, count)| {
            let [kind, namespace, name] = it.labels();
            let labels = [kind, namespace, name, ("state", state)];
            (labels, f64::from(count))
        })
    });
    encode_family(to, "gamekeeper_guarded_pods", "Guarded pods of a workload", pods)?;
    let guards = workloads.iter().filter_map(|it| {
        let condition = it.status.condition(ConditionType::Guarded)?;
        Some((it.labels(), f64::from(u8::from(condition.status == "True"))))
    });
    let help = "1 while the guard of a workload's pods is in force";
    encode_family(to, "gamekeeper_guard_in_force", help, guards)
}

fn encode_times(
    workloads: &[Workload],
    now: Timestamp,
    to: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let idle = workloads.iter().map(|it| (it.labels(), it.idle));
    let help = "Time since the workload last made progress toward its spec";
    encode_family(to, "gamekeeper_rollout_idle_seconds", help, idle)?;
    let ages = workloads.iter().filter_map(|it| Some((it.labels(), it.age(now)?)));
    let help = "Time since the workload stopped matching its spec; 0 while it matches";
    encode_family(to, "gamekeeper_rollout_age_seconds", help, ages)
}
