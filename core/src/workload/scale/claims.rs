//! Volume claims: they are created before their pod, and outlive it unless the retention policy says otherwise.
//!
//! Claims are never deleted here. The garbage collector deletes a claim together with its owner:
//! the workload (whenDeleted), or a pod that is scaled in (whenScaled). The owner reference to a pod is added
//! once the pod's hook allows the deletion, right before the pod is deleted. It is removed if the pod stays.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::api::{PvcRetention, Reason, names};
use crate::guard::Permit;
use crate::observed::{Claim, ClaimOwner, Pod, PodUid};
use crate::workload::decision::Blocked;
use crate::workload::spec::Workload;
use crate::workload::spec::identity;
use crate::workload::spec::identity::{ClaimTemplate, Identity};
use crate::workload::world::World;
use crate::write::{ClaimOwnership, NewClaim, Write};

/// The claims of a workload.
pub(crate) struct Claims<'a> {
    workload: &'a Workload<'a>,
    identity: Identity<'a>,
    templates: Vec<ClaimTemplate<'a>>,
    world: &'a World,
    /// The owner reference on claims of pods that stay; None if these claims outlive the workload.
    owner_of_kept_claims: Option<Value>,
    /// Uids of pods that own their claims, or are about to own them, so that the claims are deleted with them.
    leaving_pods: BTreeSet<PodUid<'a>>,
    /// The ordinals of these pods.
    leaving_ordinals: BTreeSet<i64>,
    /// The writes so far.
    writes: Vec<Write>,
}

/// Whether the claims of an ordinal can be used.
pub(crate) enum Readiness {
    /// All of them can.
    Ready,
    /// Some have yet to be created.
    Awaited,
    /// One is being deleted, or belongs to another object.
    Blocked(Blocked),
}

impl<'a> Claims<'a> {
    /// The claims of a workload, as observed.
    pub(crate) fn new(
        workload: &'a Workload<'a>,
        identity: Identity<'a>,
        world: &'a World,
    ) -> Self {
        let deleted_with_workload = identity.retention.when_deleted == PvcRetention::Delete;
        Self {
            workload,
            identity,
            templates: identity.claim_templates().collect(),
            world,
            owner_of_kept_claims: deleted_with_workload.then(|| json!(workload.owner_reference())),
            leaving_pods: BTreeSet::new(),
            leaving_ordinals: BTreeSet::new(),
            writes: Vec::new(),
        }
    }

    /// Creates the missing claims of an ordinal, and returns whether all can be used.
    pub(crate) fn prepare(&mut self, ordinal: i64) -> Readiness {
        let mut readiness = Readiness::Ready;
        for template in &self.templates {
            let name = template.claim_name(ordinal);
            match self.world.claims.get(&name) {
                None => {
                    let owners = self.owner_of_kept_claims.iter().cloned().collect();
                    let claim = identity::claim(self.workload, template, &name, owners);
                    self.writes.push(Write::create_claim(NewClaim { name, claim }));
                    readiness = Readiness::Awaited;
                }
                Some(claim) => {
                    if let Some(blocked) = self.why_unusable(claim, ordinal) {
                        return Readiness::Blocked(blocked);
                    }
                }
            }
        }
        readiness
    }

    fn why_unusable(&self, claim: &Claim, ordinal: i64) -> Option<Blocked> {
        let pod = self.workload.pod_name(ordinal);
        let name = &claim.name;
        let will_be_deleted =
            claim.terminating || self.owning_pods(claim, ordinal).next().is_some();
        if will_be_deleted {
            return Some(Blocked {
                reason: Reason::ClaimTerminating,
                message: format!(
                    "claim {name} is being deleted; pod {pod} is created, with a new claim, after that"
                ),
            });
        }
        let owner = claim.owners.iter().find(|owner| owner.controller)?;
        (owner.uid != self.workload.uid).then(|| Blocked {
            reason: Reason::ClaimNotOurs,
            message: format!(
                "claim {name}, which pod {pod} needs, is owned by {} {}; delete the claim, or remove \
                 its owner reference",
                owner.kind, owner.name
            ),
        })
    }

    /// Makes a pod the owner of its claims, if the retention policy says so. The pod is cleared for deletion and will
    /// not be replaced. Returns whether it may be deleted: not before it has been observed as the owner of its claims.
    pub(crate) fn transfer(&mut self, permit: &Permit<'a>, ordinal: i64) -> bool {
        let pod = permit.pod();
        if self.identity.retention.when_scaled == PvcRetention::Retain {
            return true;
        }
        self.leaving_pods.insert(pod.uid());
        self.leaving_ordinals.insert(ordinal);
        let ours = &self.workload.uid;
        let lacks_pod_as_owner = |claim: &&Claim| {
            let owner = claim.controller();
            let is_foreign = owner.is_some_and(|uid| uid != ours && uid != pod.uid);
            !(claim.terminating || is_foreign || claim.is_owned_by(&pod.uid))
        };
        let not_owned_by_pod = self.claims_of(ordinal).filter(lacks_pod_as_owner);
        let changes = not_owned_by_pod.map(|claim| {
            let remove = claim.is_owned_by(ours).then(|| ours.clone());
            Write::own_claim(ClaimOwnership {
                name: claim.name.clone(),
                uid: claim.uid.clone(),
                add: Some(owner_reference_to(pod)),
                remove: remove.into_iter().collect(),
            })
        });
        let changes: Vec<Write> = changes.collect();
        let pod_owns_all = changes.is_empty();
        self.writes.extend(changes);
        pod_owns_all
    }

    /// Returns all writes, including those that set the owners of claims as the retention policy requires. `wanted`
    /// tells whether an ordinal should have a pod.
    pub(crate) fn settle(mut self, own: &[&Pod], wanted: impl Fn(i64) -> bool) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.writes);
        if self.world.claims.is_empty() {
            return writes;
        }
        let pods: HashMap<&str, &Pod> = own.iter().map(|pod| (pod.uid.as_str(), *pod)).collect();
        for claim in self.world.claims.values().filter(|it| !it.terminating) {
            let ordinal = self.ordinal(claim);
            let is_wanted = ordinal.is_some_and(&wanted);
            // A pod that is scaled in remains the owner of its claims: its hook has allowed its deletion.
            let remains_owner = |pod: &Pod| {
                let is_leaving = pod.terminating || self.leaving_pods.contains(&pod.uid());
                self.identity.retention.when_scaled == PvcRetention::Delete
                    && !is_wanted
                    && is_leaving
            };
            let mut remove: Vec<String> = Vec::new();
            let mut deleted_with_pod = false;
            let owners = claim.owners.iter();
            for pod in owners.filter_map(|owner| pods.get(owner.uid.as_str())) {
                if remains_owner(pod) {
                    deleted_with_pod = true;
                } else {
                    remove.push(pod.uid.clone());
                }
            }
            if self.owner_of_kept_claims.is_none() && claim.is_owned_by(&self.workload.uid) {
                remove.push(self.workload.uid.clone());
            }
            let is_free = claim.owners.iter().all(|it| remove.contains(&it.uid));
            let is_transferred = ordinal.is_some_and(|it| self.leaving_ordinals.contains(&it));
            let is_kept = is_wanted && is_free && !deleted_with_pod && !is_transferred;
            // Owners are removed first. A new one is added once the removal has been observed.
            let add = self.owner_of_kept_claims.as_ref();
            let add = add.filter(|_| is_kept && remove.is_empty()).cloned();
            if add.is_some() || !remove.is_empty() {
                writes.push(Write::own_claim(ClaimOwnership {
                    name: claim.name.clone(),
                    uid: claim.uid.clone(),
                    add,
                    remove,
                }));
            }
        }
        writes
    }

    /// Those owners of a claim that are the pod of this ordinal, or earlier pods of the same name. The claim is deleted
    /// with them.
    fn owning_pods<'c>(
        &self,
        claim: &'c Claim,
        ordinal: i64,
    ) -> impl Iterator<Item = &'c ClaimOwner> + use<'c> {
        let pod = self.workload.pod_name(ordinal);
        let owners = claim.owners.iter();
        owners.filter(move |owner| owner.kind == "Pod" && owner.name == pod)
    }

    fn claims_of(&self, ordinal: i64) -> impl Iterator<Item = &'a Claim> + use<'_, 'a> {
        let claims = &self.world.claims;
        let names = self.templates.iter().map(move |it| it.claim_name(ordinal));
        names.filter_map(|name| claims.get(&name).map(AsRef::as_ref))
    }

    fn ordinal(&self, claim: &Claim) -> Option<i64> {
        let mut templates = self.templates.iter();
        templates.find_map(|template| names::ordinal_after(&template.prefix, &claim.name))
    }
}

fn owner_reference_to(pod: &Pod) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": pod.uid,
        "controller": true,
        "blockOwnerDeletion": false,
    })
}
