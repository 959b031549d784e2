//! The operator in the model of lifecycle hooks: it plans from its caches, and carries out one write at a time, as
//! `reconcile::cluster` does.

use std::sync::Arc;

use gamekeeper_core::api::names::RUN_STEP;
use gamekeeper_core::api::{Cluster, HookRun, LifecycleStep};
use gamekeeper_core::lifecycle::{ClusterNode, ClusterWorld, Memory, plan};
use gamekeeper_core::write::{Change, NodePatch, Write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fault::Fault;
use super::rules;
use super::state::{Cache, NOW, State, Step, annotation};

impl State {
    pub(super) fn plan(&mut self) {
        let Some(cluster) = self.cached.cluster.clone() else {
            return;
        };
        let mut seen = cluster.clone();
        let mut world = ClusterWorld {
            now: NOW,
            nodes: self.cached.nodes.iter().cloned().map(Arc::new).collect(),
            runs: self.cached.runs.iter().cloned().map(Arc::new).collect(),
            older_cluster: None,
            image: "gamekeeper:1".to_owned(),
            game_pods: Vec::new(),
            memory: Memory::default(),
        };
        if let Some(fault) = self.fault {
            fault.corrupt_input(&mut seen, &mut world);
        }
        let mut plan = plan(&seen, &world);
        if let Some(fault) = self.fault {
            fault.corrupt_output(&mut plan, &world);
        }
        let status = plan.status.map(|status| {
            let status = Some(status);
            Step::Status(Box::new(Cluster { status, ..cluster.clone() }))
        });
        let needs_get = plan.writes.iter().any(|it| it.trial().is_some());
        let get = needs_get.then_some(Step::Get);
        let get = get.filter(|_| self.fault != Some(Fault::NoQuorumGet));
        let writes = plan.writes.into_iter().map(|write| Step::Act(Box::new(write)));
        self.pending = status.into_iter().chain(get).chain(writes).collect();
        self.planned_for = Some(cluster);
        self.confirmed = None;
        self.planned_nodes.clone_from(&self.cached.nodes);
    }

    /// Whether a plan would write something.
    pub fn has_work(&self) -> bool {
        let mut after = self.clone();
        after.plan();
        !after.pending.is_empty()
    }

    /// Makes the next write of the plan. If its precondition does not hold, the rest of the plan is dropped.
    pub(super) fn write(&mut self) -> Result<(), String> {
        let step = self.pending.remove(0);
        rules::check(self, &step)?;
        if !self.carry_out(step) {
            self.pending.clear();
        }
        Ok(())
    }

    fn carry_out(&mut self, step: Step) -> bool {
        match step {
            Step::Status(wanted) => {
                let version = self.next_resource_version();
                let stored = self.stored.cluster.as_mut();
                let Some(stored) = stored
                    .filter(|it| it.metadata.resource_version == wanted.metadata.resource_version)
                else {
                    return false;
                };
                stored.status = wanted.status;
                stored.metadata.resource_version = Some(version.clone());
                self.record_own_version(version);
                self.own_writes.push(Cache::Cluster);
                true
            }
            Step::Get => {
                let key = |it: &Option<Cluster>| {
                    let metadata = it.as_ref().map(|it| &it.metadata);
                    metadata.map(|it| (it.generation, it.deletion_timestamp.is_some()))
                };
                self.confirmed.clone_from(&self.stored.cluster);
                key(&self.stored.cluster) == key(&self.planned_for)
            }
            Step::Act(write) => self.act(&write),
        }
    }

    /// Records the version of the operator's own write, so that this write does not make the rest of the plan outdated.
    fn record_own_version(&mut self, version: String) {
        if let Some(cluster) = &mut self.planned_for {
            cluster.metadata.resource_version = Some(version);
        }
    }

    fn act(&mut self, write: &Write) -> bool {
        match write.change() {
            Change::PatchWorkload(patch) => {
                let planned_for = self.planned_for.as_ref();
                let wanted = planned_for.and_then(|it| it.metadata.resource_version.clone());
                let version = self.next_resource_version();
                let stored = self.stored.cluster.as_mut();
                let Some(stored) = stored.filter(|it| it.metadata.resource_version == wanted)
                else {
                    return false;
                };
                stored.metadata.finalizers = patch.finalizers.clone().filter(|it| !it.is_empty());
                stored.metadata.resource_version = Some(version);
                self.remove_if_done();
                self.own_writes.push(Cache::Cluster);
            }
            Change::CreateHookRun(run) => {
                let mut run = HookRun::clone(run);
                let name = run.metadata.name.clone();
                let step = LifecycleStep::parse(&annotation(&run, RUN_STEP));
                if step.is_some_and(|step| LifecycleStep::UPGRADE.contains(&step)) {
                    let planned_for = self.planned_for.as_ref();
                    let status = planned_for.and_then(|it| it.status.as_ref());
                    let number = status.and_then(|it| Some(it.upgrade.as_ref()?.number));
                    self.upgrades.extend(name.clone().zip(number));
                }
                if !self.stored.runs.iter().any(|it| it.metadata.name == name) {
                    run.metadata.uid =
                        name.map(|name| format!("{name}-{}", self.last_resource_version));
                    self.stored.runs.push(run);
                }
                self.own_writes.push(Cache::Runs);
            }
            Change::Delete { uid, .. } => {
                let runs = &mut self.stored.runs;
                let found = runs.iter().position(|run| run.metadata.uid.as_ref() == Some(uid));
                if let Some(index) = found {
                    // A run whose script has ended has no dependents to wait for.
                    match runs[index].phase().is_completed() {
                        true => drop(runs.remove(index)),
                        false => runs[index].metadata.deletion_timestamp = Some(Time(NOW)),
                    }
                }
                self.own_writes.push(Cache::Runs);
            }
            // There are no pods in the model.
            Change::SetMetadata { .. } => {}
            Change::PatchNode(patch) => {
                let version = self.next_resource_version();
                let Some(stored) = self.unchanged(patch) else {
                    return false;
                };
                stored.unschedulable = patch.cordon.unwrap_or(stored.unschedulable);
                (stored.record, stored.resource_version) = (patch.record.clone(), version);
                self.own_writes.push(Cache::Nodes);
            }
            Change::AdmitNode { uid, .. } => {
                let version = self.next_resource_version();
                let mut nodes = self.stored.nodes.iter_mut();
                let Some(stored) = nodes.find(|it| it.uid == *uid) else {
                    return false;
                };
                (stored.not_installed_taint_index, stored.resource_version) = (None, version);
                self.own_writes.push(Cache::Nodes);
            }
            change => panic!("no plan of a Cluster makes this write: {change:?}"),
        }
        self.own_writes.dedup();
        true
    }

    /// The stored node, if it has not changed since the plan was made.
    fn unchanged(&mut self, patch: &NodePatch) -> Option<&mut ClusterNode> {
        let mut nodes = self.stored.nodes.iter_mut();
        nodes.find(|it| it.uid == patch.uid && it.resource_version == patch.resource_version)
    }
}
