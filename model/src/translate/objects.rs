//! Builds real objects from those of the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use gamekeeper_core::api::names;
use gamekeeper_core::api::{
    ConditionType, GameDeployment, GameDeploymentStatus, HookRun, HookRunStatus, OnNodeGoing,
    PodProtection, Protection, ProtectionStatus, WaitReason, WaitingPod,
};
use gamekeeper_core::observed;
use gamekeeper_core::observed::{Trouble, TroubleKind};
use gamekeeper_core::workload;
use gamekeeper_core::write::Attempt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, FieldsV1, ManagedFieldsEntry, Time as Date,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::json;

use super::naming::*;
use super::settings::resources;
use super::{Translator, View};
use crate::scope::{Quota, QuotaKind};
use crate::state::*;

pub(super) const NAMESPACE: &str = "games";
/// The deadline of guarded pods.
pub const DEADLINE: Time = 2;
pub(super) const UID: &str = "workload-uid";
/// The node on which the first pods run.
const NODE: &str = "node";
/// The API server's message about a full quota that counts pods.
pub const FULL_QUOTA_OF_PODS: &str =
    "exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3";
/// The PriorityClass of a template for which a quota is full.
pub const PRIORITY_CLASS: &str = "gold";
/// The key of a taint that the templates tolerate.
pub(super) const TOLERATED: &str = "pool";

impl Translator {
    /// The real workload, whose status lists those of these pods that wait.
    pub fn workload(&self, workload: &Workload, pods: &[Pod]) -> GameDeployment {
        let mut gd = self.base.clone();
        gd.metadata.generation = Some(i64::from(workload.generation));
        let spec = &mut gd.spec;
        spec.replicas = Some(i32::from(workload.replicas));
        spec.template = self.templates[usize::from(workload.template)].clone().into();
        spec.scale_strategy.pods_to_delete =
            workload.pods_to_delete.iter().map(|name| pod_name(*name, false)).collect();
        let update = &mut spec.update_strategy;
        update.paused = workload.paused;
        update.type_ = workload.strategy;
        update.partition = Some(IntOrString::Int(i32::from(workload.partition)));
        let steps = self.step_lists[usize::from(workload.steps)].clone();
        update.canary = Some(serde_json::from_value(json!({"steps": steps})).expect("steps"));
        let strategies = [
            &mut spec.pre_delete_update_strategy,
            &mut spec.pre_inplace_update_strategy,
            &mut spec.post_inplace_update_strategy,
        ];
        for (bit, strategy) in strategies.into_iter().enumerate() {
            let is_configured = strategy.hook.is_some() && workload.hooked;
            strategy.hook = is_configured.then(|| hook_step(workload.hook));
            strategy.retry = workload.retry & (1 << bit) != 0;
        }
        let annotations = [
            (names::PAUSE_ANNOTATION, workload.pause_annotation),
            (names::RETRY_ANNOTATION, workload.retry_annotation),
            (names::PROMOTE_ANNOTATION, workload.promote_annotation),
        ];
        for (key, text) in annotations.into_iter().filter(|(_, text)| *text != 0) {
            gd.annotations_mut().insert(key.to_owned(), self.text(text));
        }
        self.set_guard(workload, &mut gd);
        if workload.by_apply {
            gd.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
                manager: Some("argocd".to_owned()),
                operation: Some("Apply".to_owned()),
                fields_v1: Some(FieldsV1(
                    json!({"f:spec": {"f:updateStrategy": {"f:paused": {}}}}),
                )),
                ..ManagedFieldsEntry::default()
            }]);
        }
        // The API server gives a new object the observed generation -1. Otherwise it is not modeled, because no rule
        // depends on it.
        gd.status = Some(GameDeploymentStatus {
            observed_generation: match workload.status {
                0 => -1,
                _ => i64::from(workload.generation),
            },
            protection: self.protection(workload, pods),
            conditions: vec![stalled(workload)],
            ..self.status_value(workload.status)
        });
        gd
    }

    fn protection(&self, workload: &Workload, pods: &[Pod]) -> Option<ProtectionStatus> {
        let waiting = workload.waits.iter().filter_map(|(uid, since)| {
            let pod = pods.iter().find(|pod| pod.uid == *uid)?;
            Some(WaitingPod {
                pod_name: pod_name(pod.name, self.stateful_set.is_some()),
                node: String::new(),
                since: Date(clock(*since)),
                reason: WaitReason::HookRunning,
                message: String::new(),
            })
        });
        let waiting: Vec<_> = waiting.collect();
        (!waiting.is_empty()).then(|| ProtectionStatus { waiting, ..ProtectionStatus::default() })
    }

    /// The pods that wait according to a status that was planned for this view.
    pub fn waits_of(&self, status: &GameDeploymentStatus, view: &View) -> Vec<(Uid, Time)> {
        let listed = status.protection.iter().flat_map(|it| &it.waiting);
        let waits = listed.map(|it| {
            let name = parse_name(&it.pod_name);
            let mut pods = view.pods.iter();
            let pod = pods.find(|pod| pod.name == name && !pod.orphan);
            (pod.expect("a pod").uid, time_of(it.since.0))
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable();
        waits
    }

    /// Sets spec.protection, the finalizers, the deletion, and the annotation that keeps the hook.
    fn set_guard(&self, workload: &Workload, gd: &mut GameDeployment) {
        let Guard { wanted, finalizer, deletion, .. } = workload.guard;
        gd.spec.protection = wanted.then(|| Protection {
            pods: PodProtection::Guarded,
            on_node_going: match self.moves_off_nodes {
                true => OnNodeGoing::Move,
                false => OnNodeGoing::Wait,
            },
            ask_again_seconds: TICK_SECONDS as i32,
            deadline_seconds: Some(TICK_SECONDS as i32 * i32::from(DEADLINE)),
        });
        let guard_finalizer = finalizer.then_some(names::GUARD_FINALIZER);
        let cascade_finalizer = match deletion {
            Some(Cascade::Orphan) => Some(names::ORPHAN_FINALIZER),
            Some(Cascade::Foreground) => Some("foregroundDeletion"),
            _ => None,
        };
        let finalizers = guard_finalizer.into_iter().chain(cascade_finalizer);
        gd.metadata.finalizers = Some(finalizers.map(str::to_owned).collect());
        gd.metadata.deletion_timestamp = deletion.map(|_| Date(beginning()));
        if finalizer {
            let spec = serde_json::to_string(&self.hook_template.spec).expect("JSON");
            let kept_hook = format!("{{\"templateName\":\"{TEMPLATE}\",\"spec\":{spec}}}");
            let key = names::KEPT_HOOK_ANNOTATION.to_owned();
            gd.annotations_mut().insert(key, kept_hook);
        }
    }

    /// The world that the operator observes.
    pub fn world(&self, view: &View) -> workload::World {
        let revision = |(number, rev): (usize, &Rev)| {
            Arc::new(workload::Revision {
                name: self.revision_name(*rev).to_owned(),
                uid: format!("revision-{rev}"),
                number: number as i64 + 1,
                template: self.templates[usize::from(*rev)].clone().into(),
                controlled: true,
            })
        };
        let mut world = self.bare_world(view.now);
        world.sidecars = self.sidecars(view.sidecar_set).into_iter().collect();
        world.pods = view.pods.iter().map(|pod| Arc::new(self.pod(pod))).collect();
        world.memory.guard = view.budget.map(|exists| match exists {
            true => workload::GuardState::InForce { at: world.now, others: Vec::new() },
            false => workload::GuardState::NoBudget { times: 0 },
        });
        observe_node(&mut world, view.node);
        world.runs = view.runs.iter().map(|run| Arc::new(self.run(run))).collect();
        world.revisions = view.revisions.iter().enumerate().map(revision).collect();
        for rev in (0..self.templates.len() as Rev).filter(|rev| view.accepted & (1 << rev) != 0) {
            let name = self.revision_name(rev).to_owned();
            world.memory.verdicts.insert(name, workload::Verdict::Accepted);
        }
        if let Some(Refused { rev, at, full, trial }) = view.refused {
            let message = match full {
                true => self.exceeded_quota(),
                false => "refused",
            };
            let refused = workload::Verdict::Refused {
                message: message.to_owned(),
                at: timestamp(at),
                replacement: match trial {
                    Trial::Untried => workload::Replacement::Untried,
                    Trial::Awaited => workload::Replacement::Awaited(None),
                    Trial::Failed => workload::Replacement::Failed,
                },
            };
            world.memory.verdicts.insert(self.revision_name(rev).to_owned(), refused);
        }
        let Denied { updates, removals } = view.denied;
        for (attempt, is_denied) in
            [(Attempt::RecreatePod, updates), (Attempt::RemovePod, removals)]
        {
            if is_denied {
                world.memory.failures.record(attempt, "denied".to_owned(), timestamp(0));
            }
        }
        world
    }

    /// The API server's message about a full quota.
    fn exceeded_quota(&self) -> &'static str {
        match self.quota.map(|it| it.kind) {
            Some(QuotaKind::Twice) => {
                "exceeded quota: cpu, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=3"
            }
            _ => FULL_QUOTA_OF_PODS,
        }
    }

    pub fn pod(&self, pod: &Pod) -> observed::Pod {
        let has_ordinal = self.stateful_set.is_some();
        let mut labels = vec![
            ("app", "game".to_owned()),
            (names::REVISION_LABEL, self.revision_name(pod.rev).to_owned()),
        ];
        if pod.guarded {
            labels.push((names::GUARDED_LABEL, UID.to_owned()));
        }
        if has_ordinal {
            labels.push((names::POD_NAME_LABEL, pod_name(pod.name, true)));
            labels.push((names::POD_ORDINAL_LABEL, pod.name.to_string()));
            labels.push((names::POD_INDEX_LABEL, pod.name.to_string()));
        } else {
            labels.push((names::INSTANCE_LABEL, instance(pod.name, false)));
        }
        let labels = labels.into_iter();
        observed::Pod {
            namespace: NAMESPACE.to_owned(),
            name: pod_name(pod.name, has_ordinal),
            uid: pod_uid(pod.uid),
            resource_version: u64::from(pod.uid) + 1,
            generation: 2,
            created: beginning() + SignedDuration::from_secs(i64::from(pod.uid) - 1000),
            terminating: pod.terminating,
            labels: labels.map(|(key, value)| (key.to_owned(), value)).collect(),
            controller: (!pod.orphan).then(|| UID.to_owned()),
            deletion_cost: 0,
            annotated: true,
            marked_deleting: pod.marked,
            waiting_since: pod.waiting_since.map(clock),
            move_requested: pod.move_requested.map(|by| match by {
                Requester::User => observed::MoveRequest::User,
                Requester::Operator => observed::MoveRequest::NodeGoing,
            }),
            released: pod.released,
            disruption: pod.disrupted.then_some(observed::Disruption::Taint),
            hot_patched: pod.hot,
            index: pod.index.map(u32::from),
            sidecars: self.sets.marks(pod),
            postponed: None,
            trouble: trouble(pod).map(Box::new),
            record: pod.record.as_ref().map(|it| Arc::new(self.record(pod, it))),
            node: Some(if pod.on_node { NODE } else { "another" }.to_owned()),
            phase: pod.phase,
            ended_at_once: None,
            ready_since: pod.ready.map(timestamp),
            gate: match pod.gate {
                Gate::Absent => observed::Gate::None,
                Gate::Unset => observed::Gate::Unset,
                Gate::Open => observed::Gate::Open,
                Gate::Closed(since) => observed::Gate::Closed(closing_timestamp(since)),
            },
            pod_ip: None,
            host_ip: None,
            observed_generation: if pod.observed { 2 } else { 1 },
            containers: containers(pod, self.quota),
            resize: observed::Resize::Settled,
            qos: None,
            overhead: None,
            first_status: None,
        }
    }

    fn record(&self, pod: &Pod, record: &Record) -> observed::InPlaceRecord {
        let change = |name: &str, from: &Origin| observed::ContainerChange {
            from_image: image_in(name, from.image),
            from_container_id: from
                .restarts
                .map(|restarts| container_id(pod.uid, restarts))
                .unwrap_or_default(),
            from_restart_count: i32::from(from.restarts.unwrap_or(0)),
            from_unfinished: from.unfinished,
            // In the model, an image has only one name.
            from_named: false,
            resources: None,
            turn: match from.turn {
                Turn::Set => observed::Turn::Set,
                Turn::Next(rev) => observed::Turn::Next(image_in(name, rev)),
                Turn::Passed => observed::Turn::Passed,
            },
        };
        let containers = CONTAINERS.into_iter().zip(&record.from);
        observed::InPlaceRecord {
            revision: self.revision_name(record.rev).to_owned(),
            // In the model, no change in place is refused.
            from: String::new(),
            gate_closed_at: record.closed_at.map(closing_timestamp),
            patched_at: timestamp(record.patched_at),
            hot: record.hot,
            done: record.done,
            sidecars: self.sets.record(record.sidecar),
            containers: containers
                .filter_map(|(name, from)| {
                    Some((name.to_owned(), Box::new(change(name, from.as_ref()?))))
                })
                .collect(),
        }
    }

    pub fn run(&self, run: &Run) -> HookRun {
        let id = &run.id;
        let part = match id.pod {
            Some(_) => instance(id.name, self.stateful_set.is_some()),
            None => id.name.to_string(),
        };
        let mut annotations = vec![
            (names::RUN_WORKLOAD_UID, UID.to_owned()),
            (names::RUN_HOOK_HASH, hook_hash(id.hook)),
            (names::RUN_GENERATION, id.generation.to_string()),
        ];
        if let Some(pod) = id.pod {
            let target = id.target.map_or("", |rev| self.revision_name(rev));
            annotations.push((names::RUN_POD_UID, pod_uid(pod)));
            let target = self.sets.target(target, id.sidecars);
            annotations.push((names::RUN_TARGET, target));
            let changes = id.changes.map(changed_containers);
            annotations.extend(changes.map(|it| (names::RUN_CHANGES, it)));
        }
        let mut real = HookRun {
            status: Some(HookRunStatus {
                phase: run.phase,
                started_at: Some(Date(beginning())),
                finished_at: run.phase.is_completed().then(|| Date(timestamp(run.finished))),
                ..HookRunStatus::default()
            }),
            ..HookRun::default()
        };
        let revision = self.revision_name(id.rev);
        real.metadata.name = Some(id.point.run_name(revision, &part, TEMPLATE));
        real.metadata.uid = Some(run_uid(id));
        real.metadata.creation_timestamp = Some(Date(beginning()));
        real.metadata.labels = Some(BTreeMap::from([(
            self.kind().type_label().to_owned(),
            id.point.as_str().to_owned(),
        )]));
        real.metadata.annotations =
            Some(annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        real
    }
}

/// Adds what the operator knows about the node.
fn observe_node(world: &mut workload::World, node: Node) {
    let taint = |key: &str| observed::Taint {
        key: key.to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    let node_taint = match node {
        Node::Cordoned => Some(taint("node.kubernetes.io/unschedulable")),
        Node::Going => Some(taint("ToBeDeletedByClusterAutoscaler")),
        Node::Tolerated => Some(taint(TOLERATED)),
        Node::Fine | Node::Silent | Node::Lost => None,
    };
    let tainted = node_taint.map(|taint| (NODE.to_owned(), Arc::from([taint])));
    world.going_nodes.extend(tainted);
    if node.is_silent() {
        let since = match node {
            Node::Lost => jiff::Timestamp::UNIX_EPOCH,
            _ => world.now,
        };
        let lost =
            observed::LostNode { unreachable: true, since: Some(since), out_of_service: false };
        world.lost_nodes.insert(NODE.to_owned(), lost);
    }
}

/// The condition that ends the time until a problem stalls the workload, which is not modeled: nothing but this
/// condition depends on it.
fn stalled(workload: &Workload) -> Condition {
    Condition {
        type_: ConditionType::Stalled.as_str().to_owned(),
        status: "True".to_owned(),
        reason: String::new(),
        message: String::new(),
        observed_generation: Some(i64::from(workload.generation)),
        last_transition_time: Date(Timestamp::UNIX_EPOCH),
    }
}

fn containers(pod: &Pod, quota: Option<Quota>) -> Vec<observed::Container> {
    let containers = pod.containers.iter().zip(CONTAINERS);
    let containers = containers.filter_map(|(it, name)| Some((it.as_ref()?, name)));
    let containers = containers.enumerate();
    let resources: Arc<str> = Arc::from(resources(quota, pod.rev).to_string());
    let real = |(index, (it, name))| observed::Container {
        resources: Arc::clone(&resources),
        ..real_container(pod, it, index, name)
    };
    containers.map(real).collect()
}

/// Why a pod that runs is not ready. What is told at once is enough: nothing is decided by it.
fn trouble(pod: &Pod) -> Option<Trouble> {
    let is_broken = pod.up && !pod.healthy && !pod.terminating;
    is_broken.then(|| Trouble {
        kind: TroubleKind::Crashing {
            container: "game".to_owned(),
            ended: "exit code 1".to_owned(),
        },
        since: beginning(),
        over_at: None,
    })
}

fn real_container(
    pod: &Pod,
    container: &Container,
    index: usize,
    name: &str,
) -> observed::Container {
    let is_reported = pod.up || !matches!(pod.phase, observed::PodPhase::Pending);
    let status = observed::ContainerStatus {
        image: image_in(name, container.runs),
        image_id: format!("sha256:{}", container.runs),
        container_id: container_id(pod.uid, container.restarts),
        restart_count: i32::from(container.restarts),
        ready: pod.up && pod.healthy,
        running: pod.up,
        started_at: None,
        resources_applied: true,
    };
    observed::Container {
        name: name.to_owned(),
        index,
        init: false,
        image: image_in(name, container.image),
        resources: Arc::from("{}"),
        status: is_reported.then_some(status),
    }
}
