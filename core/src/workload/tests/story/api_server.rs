//! The API server of a story: it makes writes, or refuses them because their preconditions fail.

use super::*;
use crate::observed::Kind;
use crate::observed::time::rounded_down;
use crate::simulated::{Made, Server, batch};

impl<K: Planned + Serialize> Server for Story<K> {
    type Status = K::Status;

    fn now(&self) -> Timestamp {
        self.world.now
    }

    fn kind(&self) -> Kind {
        K::KIND.into()
    }

    fn generation(&self) -> Option<i64> {
        self.object.meta().generation
    }

    fn write_status(&mut self, status: K::Status) {
        assert_is_explained(status.as_ref());
        *self.object.status_mut() = Some(status);
    }

    fn try_first(&mut self, write: &Write) -> Result<(), Refusal> {
        match write.change() {
            Change::CreatePod(new) => self.creation_refusal(new).map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    fn rehearse(&mut self, write: &Write, rehearsal: &Rehearsal) -> Result<(), Refusal> {
        let is_refused = self
            .refuses_change
            .as_ref()
            .is_some_and(|refused| refused.step == Step::Rehearsal && refused.pod == rehearsal.pod);
        self.refuse_if(is_refused, write, NOT_ON_THIS_POD)
    }

    fn make(&mut self, write: &Write) -> Result<Made, Refusal> {
        self.done.push(write.clone());
        if write.pod().is_some_and(|pod| !self.is_unchanged(pod)) {
            self.refused.push(write.clone());
            return Err(Refusal::Conflict("changed".to_owned()));
        }
        self.refuse_if(self.refuses_step(write), write, NOT_ON_THIS_POD)?;
        let is_refused = self.refuses.is_some() && self.refuses == write.attempt();
        self.refuse_if(is_refused, write, "not allowed")?;
        self.store(write.change().clone())
    }

    fn other_budgets(&self) -> Vec<OtherBudget> {
        self.other_budgets.clone()
    }
}

/// Why a step of a pod is refused.
const NOT_ON_THIS_POD: &str = "not on this pod";

fn rejected(message: &str) -> Refusal {
    Refusal::Rejected(message.to_owned())
}

impl<K: Planned + Serialize> Story<K> {
    pub(super) fn collect_garbage(&mut self) {
        let pods: BTreeSet<String> = self.pods().iter().map(|pod| pod.uid.clone()).collect();
        let exists = |owner: &ClaimOwner| owner.kind != "Pod" || pods.contains(&owner.uid);
        self.world
            .claims
            .retain(|_, claim| claim.owners.is_empty() || claim.owners.iter().any(exists));
    }

    fn refuse_if(&mut self, is_refused: bool, write: &Write, why: &str) -> Result<(), Refusal> {
        if !is_refused {
            return Ok(());
        }
        self.refused.push(write.clone());
        Err(rejected(why))
    }

    /// How a full quota refuses an additional pod.
    fn quota_refusal(&self) -> Option<Refusal> {
        let pods = self.world.pods.len();
        let quota = self.quota.filter(|quota| pods >= *quota)?;
        Some(Refusal::Rejected(format!(
            "exceeded quota: q, requested: pods=1, used: pods={pods}, limited: pods={quota}"
        )))
    }

    /// The dry run of a pod that is not created, to learn whether those of its revision are accepted.
    fn try_to_create(&self) -> Result<(), Refusal> {
        let refusal = || self.dry_run_refusal.as_deref().map(rejected);
        self.quota_refusal().or_else(refusal).map_or(Ok(()), Err)
    }

    /// Why the API server refuses to create this pod.
    fn creation_refusal(&self, new: &NewPod) -> Option<Refusal> {
        let pod = new.pod.parse();
        let image = pod["spec"]["containers"][0]["image"].as_str();
        let is_refused = |it: &&(String, String)| image == Some(it.0.as_str());
        let refused = self.creation_refusal.as_ref().filter(is_refused);
        self.quota_refusal().or_else(|| refused.map(|(_, message)| rejected(message)))
    }

    /// Makes a single write.
    pub fn carry_out(&mut self, write: Write) {
        let mut memory = std::mem::take(&mut self.world.memory);
        // Nothing depends on a single write.
        let _ = batch(vec![write], &mut memory, self);
        self.world.memory = memory;
    }

    fn store(&mut self, change: Change) -> Result<Made, Refusal> {
        let (now, tick) = (self.world.now, self.tick());
        match change {
            Change::PatchWorkload(patch) => self.patch_workload(patch),
            Change::CreateRevision(NewRevision { name, number, data, .. }) => {
                let RevisionData::Template(template) = data else {
                    panic!("{data:?}");
                };
                let uid = format!("uid-{name}");
                let revision = Revision { name, uid, number, template, controlled: true };
                self.world.revisions.push(Arc::new(revision));
            }
            change @ (Change::PatchSidecars(_)
            | Change::PatchNode(_)
            | Change::AdmitNode { .. }) => {
                panic!("no plan of a workload makes this write: {change:?}")
            }
            Change::RenumberRevision { name, number, .. } => {
                let revision =
                    self.world.revisions.iter_mut().find(|it| it.name == name).expect("revision");
                Arc::make_mut(revision).number = number;
            }
            Change::AdoptRevision { name, .. } => {
                let revisions = self.world.revisions.iter_mut();
                for revision in revisions.filter(|it| it.name == name) {
                    Arc::make_mut(revision).controlled = true;
                }
            }
            Change::AdoptPod(pod) => {
                let pod = self.pod(&pod).expect("pod");
                pod.controller = Some("uid-game".to_owned());
                (pod.marked_deleting, pod.waiting_since) = (false, None);
            }
            Change::ReleasePod(pod) => {
                let pod = self.pod(&pod).expect("pod");
                pod.controller = None;
                (pod.marked_deleting, pod.waiting_since) = (false, None);
            }
            Change::DryRun { .. } => self.try_to_create()?,
            Change::CreatePod(new) => {
                if let Some(refusal) = self.creation_refusal(&new) {
                    return Err(refusal);
                }
                let is_new = self.taken.insert(new.name.clone());
                assert!(is_new, "{} already exists", new.name);
                let pod = created_pod(&new, now, tick);
                let made = Made { uid: pod.uid.clone(), version: pod.resource_version };
                self.world.pods.push(Arc::new(pod));
                return Ok(made);
            }
            Change::DeletePod(deletion) if self.slow_to_end => {
                self.pod(&deletion.pod).expect("pod").terminating = true;
            }
            Change::DeletePod(deletion) => self.remove_pod(&deletion.pod),
            Change::ForceDeletePod(pod) => self.remove_pod(&pod),
            Change::SetMetadata { pod, labels, annotations } => {
                let pod = self.pod(&pod).expect("pod");
                set_labels(pod, labels);
                for (key, value) in annotations {
                    set_annotation(pod, key, value);
                }
            }
            Change::CreateClaim(new) => self.create_claim(&new, tick),
            Change::OwnClaim(change) => self.own_claim(change),
            Change::CreateHookRun(run) => self.create_run(*run, tick),
            Change::Delete { kind, name, uid } => match kind {
                Owned::Revision => self.world.revisions.retain(|it| it.name != name),
                Owned::HookRun | Owned::Script => {
                    self.world.runs.retain(|run| run.metadata.uid.as_ref() != Some(&uid));
                }
                Owned::Budget => self.budget = None,
            },
            Change::SetGate { pod, closed_for, .. } => {
                let pod = self.pod(&pod).expect("pod");
                pod.gate = match closed_for {
                    Some(_) => Gate::Closed(rounded_down(now)),
                    None => Gate::Open,
                };
                pod.ready_since = pod.ready_since.filter(|_| pod.gate == Gate::Open);
                let (uid, version) = (pod.uid.clone(), pod.resource_version);
                return Ok(Made { uid, version });
            }
            Change::PatchInPlace(patch) => self.patch_pod(patch),
            Change::ResizePod { pod, resources, .. } => {
                let pod = self.pod(&pod).expect("pod");
                for (name, wanted) in resources {
                    let container =
                        pod.containers.iter_mut().find(|it| it.name == name).expect("container");
                    container.resources = wanted.to_string().into();
                }
            }
            Change::ApplyBudget(budget) => self.budget = Some(budget.budget),
            // A probe is a dry run that deletes the budget.
            Change::ProbeGuard { .. } => match (&self.budget, self.has_policy) {
                (None, _) => return Err(Refusal::NotFound("no budget".to_owned())),
                (Some(_), true) => {}
                (Some(_), false) => return Err(rejected("no policy")),
            },
        }
        Ok(Made::default())
    }

    fn remove_pod(&mut self, pod: &PodRef) {
        let position = self.position(&pod.uid).expect("pod");
        self.world.pods.remove(position);
        self.leaves_garbage = true;
    }

    /// Whether this step on the way of a pod is refused.
    fn refuses_step(&self, write: &Write) -> bool {
        let Some(RefusedStep { pod, step }) = &self.refuses_change else {
            return false;
        };
        let of_pod = |it: &Write| it.pod().is_some_and(|it| it.uid == *pod);
        let is_patch = |it: &Write| of_pod(it) && matches!(it.change(), Change::PatchInPlace(_));
        match step {
            Step::Rehearsal => false,
            Step::Patch { after } => {
                is_patch(write) && self.done.iter().filter(|it| is_patch(it)).count() > *after
            }
            Step::Resize => of_pod(write) && matches!(write.change(), Change::ResizePod { .. }),
        }
    }

    /// Records that the last write of this kind was refused.
    pub fn refuse(&mut self, attempt: Attempt, message: &str) {
        self.world.memory.failures.record(attempt, message.to_owned(), self.world.now);
    }

    fn patch_workload(&mut self, patch: WorkloadPatch) {
        let mut change = json!({});
        if let Some(paused) = patch.paused {
            change["updateStrategy"]["paused"] = json!(paused);
        }
        for point in patch.retry_off {
            let field = match point {
                HookPoint::PreDelete => "preDeleteUpdateStrategy",
                HookPoint::PreInplace => "preInplaceUpdateStrategy",
                _ => "postInplaceUpdateStrategy",
            };
            change[field]["retry"] = json!(false);
        }
        if let Some(names) = patch.pods_to_delete {
            change["scaleStrategy"]["podsToDelete"] = json!(names);
        }
        if let Some(template) = patch.template {
            change["template"] = template;
        }
        self.change_spec(change);
        if let Some(finalizers) = patch.finalizers {
            self.object.meta_mut().finalizers = Some(finalizers);
        }
        let annotations = self.object.annotations_mut();
        for (key, value) in patch.annotations {
            match value {
                Some(value) => annotations.insert(key, value),
                None => annotations.remove(&key),
            };
        }
    }

    fn create_claim(&mut self, new: &NewClaim, tick: u64) {
        let claim = Claim {
            namespace: "default".to_owned(),
            name: new.name.clone(),
            uid: format!("uid-{}-{tick}", new.name),
            resource_version: tick,
            terminating: false,
            owners: new.claim["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .map(claim_owner)
                .collect(),
        };
        let old = self.world.claims.insert(new.name.clone(), Arc::new(claim));
        assert!(old.is_none(), "claim already exists");
    }

    fn own_claim(&mut self, change: ClaimOwnership) {
        let claim = self.world.claims.get_mut(&change.name).expect("claim");
        let claim = Arc::make_mut(claim);
        assert_eq!(claim.uid, change.uid);
        claim.owners.retain(|owner| !change.remove.contains(&owner.uid));
        claim.owners.extend(change.add.iter().map(claim_owner));
    }

    fn create_run(&mut self, mut run: HookRun, tick: u64) {
        let name = run.metadata.name.clone().expect("name");
        assert!(self.taken.insert(name), "HookRun already exists");
        run.metadata.uid = Some(format!("uid-run-{tick}"));
        run.metadata.creation_timestamp = Some(Time(self.world.now));
        self.world.runs.push(Arc::new(run));
    }

    fn patch_pod(&mut self, patch: InPlacePatch) {
        let pod = self.pod(&patch.pod).expect("pod");
        assert_eq!(pod.revision().as_str(), patch.from_revision);
        for (key, mark) in &patch.tokens {
            let set = key.strip_prefix(names::SIDECARS_PREFIX).expect("a mark");
            assert_eq!(pod.sidecars[set].text(), *mark);
        }
        for image in &patch.images {
            let container =
                pod.containers.iter_mut().find(|it| it.name == image.name).expect("container");
            container.image = image.to.clone();
        }
        if !patch.images.is_empty() {
            pod.generation += 1;
        }
        set_labels(pod, patch.labels);
        for (key, value) in patch.annotations {
            set_annotation(pod, &key, value);
        }
        pod.record = Some(Arc::new(patch.record));
    }
}

fn set_labels(pod: &mut Pod, labels: Vec<(String, Option<String>)>) {
    for (key, value) in labels {
        match value {
            Some(value) => pod.labels.insert(key, value),
            None => pod.labels.remove(&key),
        };
    }
}

fn set_annotation(pod: &mut Pod, key: &str, value: Option<String>) {
    let time = |text: String| text.parse().expect("a time");
    match key {
        names::DELETING_ANNOTATION => pod.marked_deleting = value.is_some(),
        names::WAITING_SINCE_ANNOTATION => pod.waiting_since = value.map(time),
        names::HOT_PATCH_ANNOTATION => pod.hot_patched = value.is_some(),
        names::BCS_IN_PLACE_GRACE => pod.postponed = None,
        names::MOVE_ANNOTATION => pod.move_requested = value.map(|_| MoveRequest::NodeGoing),
        names::IN_PLACE_RECORD => {
            let record = value.map(|text| serde_json::from_str(&text).expect("a record"));
            pod.record = record.map(Arc::new);
        }
        _ => {
            let mark = value.map(|value| BTreeMap::from([(key.to_owned(), value)]));
            pod.sidecars.extend(mark.iter().flat_map(crate::observed::sidecar_marks));
        }
    }
}

fn claim_owner(reference: &Value) -> ClaimOwner {
    let text = |field: &str| reference[field].as_str().expect("text").to_owned();
    ClaimOwner {
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        controller: reference["controller"] == true,
    }
}

fn created_pod(new: &NewPod, now: Timestamp, tick: u64) -> Pod {
    let object = new.pod.parse();
    let labels: BTreeMap<String, String> =
        serde_json::from_value(object["metadata"]["labels"].clone()).expect("labels");
    let items = |list: &str| object["spec"][list].as_array().cloned().unwrap_or_default();
    let lists = [("containers", false), ("initContainers", true)].into_iter();
    let containers = lists.flat_map(|(list, init)| {
        let containers = items(list).into_iter().enumerate();
        containers.map(move |(index, it)| (index, init, it))
    });
    let containers = containers.map(|(index, init, it)| Container {
        name: it["name"].as_str().expect("name").to_owned(),
        index,
        init,
        image: it["image"].as_str().expect("image").to_owned(),
        resources: it["resources"].to_string().into(),
        status: Some(ContainerStatus {
            image: it["image"].as_str().expect("image").to_owned(),
            image_id: String::new(),
            container_id: format!("container-{tick}-{index}"),
            restart_count: 0,
            ready: false,
            running: false,
            started_at: None,
            resources_applied: true,
        }),
    });
    Pod {
        namespace: "default".to_owned(),
        name: new.name.clone(),
        uid: format!("uid-{}-{tick}", new.name),
        resource_version: tick,
        generation: 1,
        created: now,
        terminating: false,
        labels: labels.into(),
        controller: Some("uid-game".to_owned()),
        deletion_cost: 0,
        annotated: true,
        marked_deleting: false,
        waiting_since: None,
        move_requested: None,
        released: false,
        disruption: None,
        hot_patched: false,
        index: object["metadata"]["annotations"][names::INDEX_ID]
            .as_str()
            .map(|index| index.parse().expect("an index")),
        sidecars: serde_json::from_value(object["metadata"]["annotations"].clone())
            .map_or_else(|_| BTreeMap::new(), |annotations| sidecar_marks(&annotations)),
        record: None,
        postponed: None,
        trouble: None,
        node: Some("node".to_owned()),
        phase: PodPhase::Pending,
        ended_at_once: None,
        ready_since: None,
        gate: if object["spec"]["readinessGates"].is_array() { Gate::Unset } else { Gate::None },
        pod_ip: Some("127.9.0.1".to_owned()),
        host_ip: Some("127.0.0.1".to_owned()),
        observed_generation: 1,
        containers: containers.collect(),
        resize: Resize::Settled,
        qos: None,
        overhead: None,
        first_status: None,
    }
}
