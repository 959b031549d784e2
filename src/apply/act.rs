//! One action, one write.

use jiff::Timestamp;
use serde_json::Value;

use super::request::{Content, Refusal, ResponseMetadata, to_bytes};
use super::{Applier, Target, body, go_json};
use crate::objects::{Deleted, Kind, ObjectKey, Write};
use gamekeeper_core::api::names;
use gamekeeper_core::plan::{Action, PodRef};

type OnWrite<'a> = &'a (dyn Fn(Write) + Send + Sync);

impl Applier {
    /// Makes the write of one action. `on_write` is told what the next plan must see: the new version,
    /// or that an object turned out to be deleted or to exist already.
    pub(super) async fn act(
        &self,
        target: &Target,
        action: &Action,
        now: Timestamp,
        on_write: OnWrite<'_>,
    ) -> Result<ResponseMetadata, Refusal> {
        let to = WorkloadWriter {
            applier: self,
            target,
            on_write,
        };
        match action {
            Action::PatchWorkload(patch) => {
                let body = body::workload(patch, &target.resource_version);
                to.workload(&body).await
            }
            Action::CreateRevision(new) => {
                let body = go_json::to_bytes(&body::revision(new, target));
                to.create(Kind::Revision, &new.name, body).await
            }
            Action::RenumberRevision { name, number } => {
                let body = serde_json::json!({"revision": number});
                to.revision(name, "", Content::MergePatch, &body).await
            }
            Action::DeleteRevision { name, uid } => to.delete(Kind::Revision, name, uid).await,
            Action::AdoptRevision { name, uid } => {
                let body = body::adopt(uid, target);
                to.revision(name, uid, Content::StrategicPatch, &body).await
            }
            Action::AdoptPod(pod) => to.pod(pod, "", &body::adopt(&pod.uid, target)).await,
            Action::ReleasePod(pod) => to.pod(pod, "", &body::release(&pod.uid, target)).await,
            Action::DryRun { pod, .. } => to.dry_run(pod).await,
            Action::CreatePod(new) => to.create(Kind::Pod, &new.name, to_bytes(&new.pod)).await,
            Action::DeletePod(deletion) => {
                let PodRef { name, uid, version } = &deletion.pod;
                to.delete_at(Kind::Pod, name, uid, *version).await
            }
            Action::ForceDeletePod(pod) => to.force_delete(pod).await,
            Action::LabelPod { pod, labels } => {
                to.pod(pod, "", &body::label(&pod.uid, labels)).await
            }
            Action::CreateClaim(new) => {
                to.create(Kind::Claim, &new.name, to_bytes(&new.claim))
                    .await
            }
            Action::OwnClaim(change) => {
                let id = (change.name.as_str(), change.uid.as_str());
                let body = body::own(change);
                to.patch(Kind::Claim, id, "", Content::StrategicPatch, &body)
                    .await
            }
            Action::MarkDeleting(pod) => {
                to.annotate(pod, names::DELETING_ANNOTATION, Some("true"))
                    .await
            }
            Action::UnmarkDeleting(pod) => to.annotate(pod, names::DELETING_ANNOTATION, None).await,
            Action::CreateHookRun(run) => {
                let name = run.metadata.name.as_deref().unwrap_or_default();
                to.create(Kind::HookRun, name, to_bytes(run)).await
            }
            Action::DeleteHookRun { name, uid } => to.delete(Kind::HookRun, name, uid).await,
            Action::CloseGate { pod, revision, .. } => to.gate(pod, Some(revision), now).await,
            Action::OpenGate(pod) => to.gate(pod, None, now).await,
            Action::PatchInPlace(patch) => {
                let id = (patch.pod.name.as_str(), patch.pod.uid.as_str());
                let body = body::in_place(patch);
                to.patch(Kind::Pod, id, "", Content::JsonPatch, &body).await
            }
            Action::ResizePod { pod, resources } => {
                to.pod(pod, "/resize", &body::resize(&pod.uid, resources))
                    .await
            }
            Action::FinishInPlace { pod, record } => {
                let record = body::record_text(record);
                to.annotate(pod, names::IN_PLACE_RECORD, Some(&record))
                    .await
            }
        }
    }
}

/// Writes the objects of one workload.
struct WorkloadWriter<'a> {
    applier: &'a Applier,
    target: &'a Target,
    on_write: OnWrite<'a>,
}

impl WorkloadWriter<'_> {
    fn path(&self, kind: Kind, name: &str) -> String {
        kind.path(&self.target.namespace, name)
    }

    fn collection(&self, kind: Kind) -> String {
        kind.collection(Some(&self.target.namespace))
    }

    fn seen(&self, kind: Kind, answer: &ResponseMetadata) {
        (self.on_write)(Write::Version(kind, answer.version()));
    }

    fn gone(&self, kind: Kind, name: &str, uid: &str) {
        (self.on_write)(Write::Deleted(Deleted {
            kind,
            key: ObjectKey::new(&*self.target.namespace, name),
            uid: uid.to_owned(),
        }));
    }

    async fn create(
        &self,
        kind: Kind,
        name: &str,
        body: Vec<u8>,
    ) -> Result<ResponseMetadata, Refusal> {
        let requests = &self.applier.requests;
        let created = requests.create(&self.collection(kind), body).await;
        match created {
            Ok(answer) => {
                self.seen(kind, &answer);
                Ok(answer)
            }
            Err(Refusal::AlreadyExists(message)) => {
                let there = requests.get(&self.path(kind, name)).await?;
                if kind == Kind::HookRun && there.is_left_over_run() {
                    self.delete(kind, name, &there.uid).await?;
                    return Err(Refusal::Conflict(message));
                }
                // A claim may have any owner or none: the planner judges that when it sees the claim.
                if kind != Kind::Claim && !there.is_controlled_by(&self.target.uid) {
                    let message = format!("{message}; it does not belong to this workload");
                    return Err(Refusal::AlreadyExists(message));
                }
                // The next plan must see it.
                self.seen(kind, &there);
                Err(Refusal::Conflict(message))
            }
            Err(refusal) => Err(self.unknown(kind, refusal)),
        }
    }

    /// Without an answer it is unknown whether the write was made; the next plan must not guess.
    fn unknown(&self, kind: Kind, refusal: Refusal) -> Refusal {
        if matches!(refusal, Refusal::Unavailable { .. }) {
            (self.on_write)(Write::Unknown(kind));
        }
        refusal
    }

    async fn dry_run(&self, pod: &Value) -> Result<ResponseMetadata, Refusal> {
        let requests = &self.applier.requests;
        let asked = requests
            .create_dry(&self.collection(Kind::Pod), to_bytes(pod))
            .await;
        match asked {
            // Its name is taken, which is found out after everything else.
            Err(Refusal::AlreadyExists(_)) => Ok(ResponseMetadata::default()),
            answer => answer,
        }
    }

    async fn delete(&self, kind: Kind, name: &str, uid: &str) -> Result<ResponseMetadata, Refusal> {
        self.delete_at(kind, name, uid, None).await
    }

    async fn delete_at(
        &self,
        kind: Kind,
        name: &str,
        uid: &str,
        version: Option<u64>,
    ) -> Result<ResponseMetadata, Refusal> {
        let path = self.path(kind, name);
        let deleted = self.applier.requests.delete_at(&path, uid, version).await;
        self.deleted(kind, name, uid, deleted)
    }

    async fn force_delete(&self, pod: &PodRef) -> Result<ResponseMetadata, Refusal> {
        let path = self.path(Kind::Pod, &pod.name);
        let deleted = self.applier.requests.force_delete(&path, &pod.uid).await;
        // It is Terminating already, which says nothing: the next plan must see that it is gone.
        if matches!(deleted, Ok(_) | Err(Refusal::Unavailable { .. })) {
            (self.on_write)(Write::Unknown(Kind::Pod));
        }
        deleted
    }

    fn deleted(
        &self,
        kind: Kind,
        name: &str,
        uid: &str,
        deleted: Result<ResponseMetadata, Refusal>,
    ) -> Result<ResponseMetadata, Refusal> {
        match deleted {
            Ok(answer) => {
                self.gone(kind, name, uid);
                Ok(answer)
            }
            Err(Refusal::NotFound(_)) => {
                self.gone(kind, name, uid);
                Ok(ResponseMetadata::default())
            }
            Err(refusal) => Err(self.unknown(kind, refusal)),
        }
    }

    async fn patch(
        &self,
        kind: Kind,
        (name, uid): (&str, &str),
        subresource: &str,
        content: Content,
        body: &Value,
    ) -> Result<ResponseMetadata, Refusal> {
        let path = format!("{}{subresource}", self.path(kind, name));
        let answer = self
            .applier
            .requests
            .patch(&path, content, to_bytes(body))
            .await;
        match answer {
            Ok(answer) => {
                self.seen(kind, &answer);
                Ok(answer)
            }
            Err(Refusal::NotFound(message)) => {
                self.gone(kind, name, uid);
                Err(Refusal::Conflict(message))
            }
            Err(refusal) => Err(self.unknown(kind, refusal)),
        }
    }

    async fn workload(&self, body: &Value) -> Result<ResponseMetadata, Refusal> {
        let Target { name, uid, .. } = self.target;
        self.patch(
            self.target.kind.into(),
            (name, uid),
            "",
            Content::MergePatch,
            body,
        )
        .await
    }

    async fn revision(
        &self,
        name: &str,
        uid: &str,
        content: Content,
        body: &Value,
    ) -> Result<ResponseMetadata, Refusal> {
        self.patch(Kind::Revision, (name, uid), "", content, body)
            .await
    }

    async fn pod(
        &self,
        pod: &PodRef,
        subresource: &str,
        body: &Value,
    ) -> Result<ResponseMetadata, Refusal> {
        let id = (pod.name.as_str(), pod.uid.as_str());
        self.patch(Kind::Pod, id, subresource, Content::StrategicPatch, body)
            .await
    }

    async fn annotate(
        &self,
        pod: &PodRef,
        key: &str,
        value: Option<&str>,
    ) -> Result<ResponseMetadata, Refusal> {
        let body = body::annotate(&pod.uid, &[(key, value)]);
        self.pod(pod, "", &body).await
    }

    async fn gate(
        &self,
        pod: &PodRef,
        closed_for: Option<&str>,
        now: Timestamp,
    ) -> Result<ResponseMetadata, Refusal> {
        let body = body::gate(pod, closed_for, now);
        self.pod(pod, "/status", &body).await
    }
}
