//! Sends single writes: one request for each, and what its response means for the next plan.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use super::{Applier, Target};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::{Deleted, Kind, ObjectKey, Written};
use crate::runtime::request::{
    Reads, Refusal, RequestResult, Requests, ResponseMetadata, Stored, to_bytes,
};
use gamekeeper_core::api::HookRun;
use gamekeeper_core::write::{
    Change, Object, Rehearsal, Request, Verb, Write, without_side_effects,
};

/// How long after its creation an object may be deleted because it was not stored as asked.
const UNDO_LIFETIME: Duration = Duration::from_secs(1);
/// Part of the message with which the API server refuses a dry run because of a webhook with side effects. Only the
/// request itself shows whether such a webhook takes the object.
const NO_DRY_RUN: &str = "does not support dry run";

/// Part of the message with which the chart's policy refuses to end a match. That of earlier charts refused
/// the operator's dry runs on guarded pods, too.
const GUARDS: &str = "players may be on ";

/// The message with which the chart's policy refuses the operator's dry run. No other refusal contains it.
const POLICY_MESSAGE: &str = "the guard of pods is in force";
const NO_POLICY: &str = "the ValidatingAdmissionPolicy for guarded pods is not in force: install the chart with \
                         admission.guardedPods=true, or wait until the API server has read it";

const NO_HOOK_RUNS: &str =
    "HookRuns cannot be created; install the CRD hookruns.tkex.tencent.com from the chart";

type OnWrite<'a> = &'a (dyn Fn(Written) + Send + Sync);

impl Applier {
    /// Makes one write, unless it cannot be sent before the deadline. `on_write` receives what the next plan must
    /// observe: a new version of an object, a deletion, or that the outcome is unknown.
    pub(super) async fn act(
        &self,
        target: &Target,
        write: &Write,
        deadline: Instant,
        now: Timestamp,
        on_write: OnWrite<'_>,
    ) -> RequestResult {
        let requests = self.requests.sent_before(deadline);
        let undo = &self.requests;
        let sender = Sender { requests, undo, target, write, on_write };
        let sent = sender.send(write.change().request(&target.owner, now)).await;
        match (write.change(), sent) {
            // The hook of a workload that is being deleted with its namespace runs in this process alone.
            (Change::CreateHookRun(run), Err(Refusal::NamespaceTerminating(_)))
                if target.deleting =>
            {
                self.run_unstored(run)
            }
            (_, sent) => sent,
        }
    }

    /// Checks with a dry run whether the API server would store the object of a creation as it is asked for: a creation
    /// that has to be undone would be made again and again. It takes its time, so the proof that the creation needs must
    /// follow it.
    pub(super) async fn try_first(&self, target: &Target, write: &Write) -> Result<(), Refusal> {
        let requests = self.requests.clone();
        let undo = &self.requests;
        let sender = Sender { requests, undo, target, write, on_write: &|_| {} };
        let request = write.change().request(&target.owner, Timestamp::now());
        match (request.verb, write.change()) {
            (Verb::Create(_), Change::CreatePod(new)) => {
                let pod = to_bytes(&without_side_effects(new.pod.parse()));
                sender.try_to_create(&request.path, pod).await
            }
            (Verb::Create(body), _) => sender.try_to_create(&request.path, body).await,
            _ => Ok(()),
        }
    }

    /// Checks with dry runs whether the API server accepts what a pod is about to leave service for.
    pub(super) async fn rehearse(&self, rehearsal: &Rehearsal) -> Result<(), Refusal> {
        for Request { path, verb, .. } in rehearsal.requests().iter().cloned() {
            let tried = match verb {
                Verb::DryRunPatch(content, body) => {
                    self.requests.dry_run_patch(&path, content, body).await
                }
                _ => self.requests.dry_run_delete(&path).await,
            };
            tried.map(drop).or_else(passes_without_dry_run)?;
        }
        Ok(())
    }

    fn run_unstored(&self, run: &HookRun) -> RequestResult {
        let run_name = run.metadata.name.as_deref().unwrap_or_default();
        debug!(
            run = run_name,
            "the namespace is being deleted; running the hook without a stored HookRun"
        );
        match (self.keep_unstored)(run.clone()) {
            true => Ok(ResponseMetadata::default()),
            false => {
                let message =
                    "other hooks of the namespace that is being deleted take too much memory";
                Err(Refusal::Busy { message: message.to_owned(), after: None })
            }
        }
    }
}

/// A refusal of dry runs as such is none of what they try.
fn passes_without_dry_run(refusal: Refusal) -> Result<(), Refusal> {
    let refuses_dry_runs =
        |message: &str| [NO_DRY_RUN, GUARDS].iter().any(|it| message.contains(it));
    match refusal {
        Refusal::Rejected(message) if refuses_dry_runs(&message) => Ok(()),
        refusal => Err(refusal),
    }
}

/// Sends the requests of one workload.
struct Sender<'a> {
    requests: Requests,
    /// For requests that undo one of these. They have a deadline of their own.
    undo: &'a Requests,
    target: &'a Target,
    write: &'a Write,
    on_write: OnWrite<'a>,
}

impl Sender<'_> {
    async fn send(&self, request: Request) -> RequestResult {
        let Request { object, path, verb } = request;
        let requests = &self.requests;
        match verb {
            Verb::Create(body) => self.create(&object, &path, body).await,
            Verb::DryRunCreate(body) => {
                self.try_to_create(&path, body).await.map(|()| ResponseMetadata::default())
            }
            Verb::Patch(content, body) => match requests.patch(&path, content, body).await {
                Ok(patched) => {
                    self.report_written(&object, &patched);
                    Ok(patched)
                }
                Err(Refusal::NotFound(message)) => {
                    self.report_deleted(&object);
                    Err(Refusal::Conflict(message))
                }
                Err(refusal) => Err(self.report_unknown(&object, refusal)),
            },
            Verb::Apply(body) => {
                let applied = requests.apply(&path, body).await?;
                self.compare(&applied).map(|()| applied.metadata)
            }
            Verb::DryRunPatch(content, body) => requests.dry_run_patch(&path, content, body).await,
            Verb::Delete(version) => self.delete(&object, &path, version).await,
            Verb::DeleteAfterDependents => {
                match requests.delete_after_dependents(&path, &object.uid).await {
                    // Another object has the name now.
                    Ok(_) | Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => {
                        self.report_deleted(&object);
                        Ok(ResponseMetadata::default())
                    }
                    Err(refusal) => Err(self.report_unknown(&object, refusal)),
                }
            }
            Verb::ForceDelete => {
                let deleted = requests.force_delete(&path, &object.uid).await;
                // The pod is Terminating already, so only its absence proves the deletion.
                if matches!(deleted, Ok(_) | Err(Refusal::Unavailable { .. })) {
                    (self.on_write)(Written::Unknown(Kind::Pod));
                }
                deleted
            }
            Verb::DeleteAny => match requests.delete_unconditionally(&path).await {
                Err(Refusal::NotFound(_)) => Ok(ResponseMetadata::default()),
                result => result,
            },
            Verb::DryRunDelete => match requests.dry_run_delete(&path).await {
                // The refusal shows that the guard is in force.
                Err(Refusal::Rejected(message)) if message.contains(POLICY_MESSAGE) => {
                    Ok(ResponseMetadata::default())
                }
                Ok(_) => Err(Refusal::Rejected(NO_POLICY.to_owned())),
                result => result,
            },
        }
    }

    async fn create(&self, object: &Object, collection: &str, body: Vec<u8>) -> RequestResult {
        match self.requests.create(collection, body, self.reads()).await {
            Ok(created) => match self.compare(&created) {
                Ok(()) => {
                    self.report_written(object, &created.metadata);
                    Ok(created.metadata)
                }
                Err(refusal) => {
                    Err(self.undo_creation(object, collection, &created.metadata, refusal).await)
                }
            },
            Err(Refusal::AlreadyExists(message)) => {
                let path = format!("{collection}/{}", object.name);
                let existing = self.requests.get(&path).await?;
                if object.kind == Some(Kind::HookRun) && existing.is_orphaned_run() {
                    let object = Object { uid: existing.uid, ..object.clone() };
                    self.delete(&object, &path, None).await?;
                    return Err(Refusal::Conflict(message));
                }
                let owner = &self.target.owner;
                let is_own = match owner.kind {
                    // Clusters own their runs, and do not control them.
                    Kind::Cluster => existing.is_owned_by(&owner.uid),
                    _ => existing.is_controlled_by(&owner.uid),
                };
                // The planner judges the owners of an existing claim once the cache shows it.
                if object.kind != Some(Kind::Claim) && !is_own {
                    return Err(Refusal::AlreadyExists(match owner.kind {
                        Kind::Cluster => {
                            format!("HookRun {} belongs to another object; delete it", object.name)
                        }
                        _ => format!("{message}; it does not belong to this workload"),
                    }));
                }
                // The next plan must observe the existing object.
                self.report_written(object, &existing);
                Err(Refusal::Conflict(message))
            }
            // The collection itself is missing, so a newer cache would not help.
            Err(Refusal::NotFound(message)) if object.kind == Some(Kind::HookRun) => {
                let message = format!("{NO_HOOK_RUNS}: {}", message.trim());
                Err(Refusal::Rejected(message))
            }
            Err(refusal) => Err(self.report_unknown(object, refusal)),
        }
    }

    /// Checks with a dry run whether the API server would store an object as it is asked for.
    async fn try_to_create(&self, collection: &str, body: Vec<u8>) -> Result<(), Refusal> {
        match self.requests.dry_run_create(collection, body, self.reads()).await {
            Ok(stored) => self.compare(&stored),
            // The API server checks the name last, so the object is valid.
            Err(Refusal::AlreadyExists(_)) => Ok(()),
            Err(refusal) => passes_without_dry_run(refusal),
        }
    }

    /// How much of a stored object is compared with what was asked for.
    fn reads(&self) -> Reads {
        match self.write.change() {
            Change::CreateRevision(_) | Change::CreateHookRun(_) => Reads::Object,
            _ => Reads::Metadata,
        }
    }

    /// Compares what is stored with what was asked for.
    fn compare(&self, stored: &Stored) -> Result<(), Refusal> {
        let identity = self.write.change().identity(&self.target.owner);
        debug_assert!(identity.is_some(), "what must be stored is known of each creation");
        match identity.and_then(|identity| identity.difference(&stored.object)) {
            Some(difference) => Err(Refusal::Rejected(format!(
                "a policy or webhook of the cluster changes what is created: it was stored with {difference}; exclude \
                 the objects of gamekeeper from it"
            ))),
            None => Ok(()),
        }
    }

    /// Deletes an object that was created a moment ago and is not as it was asked for, and returns why it is not. A pod is
    /// only deleted if nothing has happened to it: it may have players otherwise.
    async fn undo_creation(
        &self,
        object: &Object,
        collection: &str,
        created: &ResponseMetadata,
        refusal: Refusal,
    ) -> Refusal {
        let requests = self.undo.sent_before(Instant::now() + UNDO_LIFETIME);
        let version = (object.kind == Some(Kind::Pod)).then(|| created.version());
        let path = format!("{collection}/{}", object.name);
        match (requests.delete(&path, &created.uid, version).await, refusal) {
            (Err(why), Refusal::Rejected(message)) => {
                log_limited!(warn, path, %why, "cannot delete an object that was not stored as asked");
                let name = &object.name;
                Refusal::Rejected(format!(
                    "{message}, and delete {name}, which is left as it was stored"
                ))
            }
            (_, refusal) => refusal,
        }
    }

    async fn delete(&self, object: &Object, path: &str, version: Option<u64>) -> RequestResult {
        match self.requests.delete(path, &object.uid, version).await {
            Err(Refusal::NotFound(_)) => {
                self.report_deleted(object);
                Ok(ResponseMetadata::default())
            }
            Err(refusal) => Err(self.report_unknown(object, refusal)),
            Ok(metadata) => {
                self.report_deleted(object);
                Ok(metadata)
            }
        }
    }

    fn report_written(&self, object: &Object, metadata: &ResponseMetadata) {
        if let Some(kind) = object.kind {
            (self.on_write)(Written::Version(kind, metadata.version()));
        }
    }

    fn report_deleted(&self, object: &Object) {
        if let Some(kind) = object.kind {
            let key = ObjectKey::new(&*object.namespace, &*object.name);
            (self.on_write)(Written::Deleted(Deleted { kind, key, uid: object.uid.clone() }));
        }
    }

    /// If the response is missing, reports the write as unknown, so that the next plan does not guess whether it was
    /// made.
    fn report_unknown(&self, object: &Object, refusal: Refusal) -> Refusal {
        if let (Some(kind), Refusal::Unavailable { .. }) = (object.kind, &refusal) {
            (self.on_write)(Written::Unknown(kind));
        }
        refusal
    }
}
