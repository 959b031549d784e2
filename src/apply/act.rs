//! One action, one write.

use jiff::Timestamp;
use serde_json::Value;

use super::request::{Answer, Content, Refusal, to_bytes};
use super::{Applier, Target, Thing, Written, body, go_json};
use gamekeeper_core::api::names;
use gamekeeper_core::plan::{Action, PodRef};

type Note<'a> = &'a (dyn Fn(Written) + Send + Sync);

impl Applier {
    /// Carries one action out. An answer is noted; so is that an object turned out to be gone, or
    /// to exist already, for the next plan must see it.
    pub(super) async fn act(
        &self,
        target: &Target,
        action: &Action,
        now: Timestamp,
        note: Note<'_>,
    ) -> Result<Answer, Refusal> {
        let to = Write {
            applier: self,
            target,
            note,
        };
        match action {
            Action::PatchWorkload(patch) => {
                let body = body::workload(patch, &target.resource_version);
                to.workload(&body).await
            }
            Action::CreateRevision(new) => {
                let body = go_json::to_bytes(&body::revision(new, target));
                to.create(Thing::Revision, &new.name, body).await
            }
            Action::RenumberRevision { name, number } => {
                let body = serde_json::json!({"revision": number});
                to.revision(name, "", Content::MergePatch, &body).await
            }
            Action::DeleteRevision { name, uid } => to.delete(Thing::Revision, name, uid).await,
            Action::AdoptRevision { name, uid } => {
                let body = body::adopt(uid, target);
                to.revision(name, uid, Content::StrategicPatch, &body).await
            }
            Action::AdoptPod(pod) => to.pod(pod, "", &body::adopt(&pod.uid, target)).await,
            Action::ReleasePod(pod) => to.pod(pod, "", &body::release(&pod.uid, target)).await,
            Action::DryRun { pod, .. } => to.dry_run(pod).await,
            Action::CreatePod(new) => to.create(Thing::Pod, &new.name, to_bytes(&new.pod)).await,
            Action::DeletePod(deletion) => {
                let PodRef { name, uid, version } = &deletion.pod;
                to.delete_at(Thing::Pod, name, uid, *version).await
            }
            Action::ForceDeletePod(pod) => to.force_delete(pod).await,
            Action::LabelPod { pod, labels } => {
                to.pod(pod, "", &body::label(&pod.uid, labels)).await
            }
            Action::CreateClaim(new) => {
                to.create(Thing::Claim, &new.name, to_bytes(&new.claim))
                    .await
            }
            Action::OwnClaim(change) => {
                let id = (change.name.as_str(), change.uid.as_str());
                let body = body::own(change);
                to.patch(Thing::Claim, id, "", Content::StrategicPatch, &body)
                    .await
            }
            Action::MarkDeleting(pod) => {
                to.annotate(pod, names::DELETING_ANNOTATION, Some("true"))
                    .await
            }
            Action::UnmarkDeleting(pod) => to.annotate(pod, names::DELETING_ANNOTATION, None).await,
            Action::CreateHookRun(run) => {
                let name = run.metadata.name.as_deref().unwrap_or_default();
                to.create(Thing::HookRun, name, to_bytes(run)).await
            }
            Action::DeleteHookRun { name, uid } => to.delete(Thing::HookRun, name, uid).await,
            Action::CloseGate { pod, revision, .. } => to.gate(pod, Some(revision), now).await,
            Action::OpenGate(pod) => to.gate(pod, None, now).await,
            Action::PatchInPlace(patch) => {
                let id = (patch.pod.name.as_str(), patch.pod.uid.as_str());
                let body = body::in_place(patch);
                to.patch(Thing::Pod, id, "", Content::JsonPatch, &body)
                    .await
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

/// Where writes for one workload go.
struct Write<'a> {
    applier: &'a Applier,
    target: &'a Target,
    note: Note<'a>,
}

impl Write<'_> {
    fn path(&self, thing: Thing, name: &str) -> String {
        match thing {
            Thing::Workload => self.target.path(),
            thing => format!("{}/{name}", self.collection(thing)),
        }
    }

    fn collection(&self, thing: Thing) -> String {
        match thing {
            Thing::Workload => self.target.path(),
            Thing::Pod => self.target.pods(),
            Thing::HookRun => self.target.hook_runs(),
            Thing::Revision => self.target.revisions(),
            Thing::Claim => self.target.claims(),
        }
    }

    fn written(&self, thing: Thing, answer: &Answer) {
        (self.note)(Written::Version(thing, answer.version()));
    }

    fn gone(&self, thing: Thing, name: &str, uid: &str) {
        (self.note)(Written::Deleted(thing, name.to_owned(), uid.to_owned()));
    }

    async fn create(&self, thing: Thing, name: &str, body: Vec<u8>) -> Result<Answer, Refusal> {
        let requests = &self.applier.requests;
        let created = requests.create(&self.collection(thing), body).await;
        match created {
            Ok(answer) => {
                self.written(thing, &answer);
                Ok(answer)
            }
            Err(Refusal::AlreadyExists(message)) => {
                let there = requests.get(&self.path(thing, name)).await?;
                if thing == Thing::HookRun && there.is_left_over_run() {
                    self.delete(thing, name, &there.uid).await?;
                    return Err(Refusal::Conflict(message));
                }
                // A claim may be anybody's, or nobody's: the planner judges that when it sees it.
                if thing != Thing::Claim && !there.is_controlled_by(&self.target.uid) {
                    let message = format!("{message}; it does not belong to this workload");
                    return Err(Refusal::AlreadyExists(message));
                }
                // The next plan must see it.
                self.written(thing, &there);
                Err(Refusal::Conflict(message))
            }
            Err(refusal) => Err(self.unknown(thing, refusal)),
        }
    }

    /// Without an answer nobody knows whether it was done; the next plan must not guess.
    fn unknown(&self, thing: Thing, refusal: Refusal) -> Refusal {
        if matches!(refusal, Refusal::Unavailable { .. }) {
            (self.note)(Written::Unknown(thing));
        }
        refusal
    }

    async fn dry_run(&self, pod: &Value) -> Result<Answer, Refusal> {
        let requests = &self.applier.requests;
        let asked = requests
            .create_dry(&self.target.pods(), to_bytes(pod))
            .await;
        match asked {
            // Its name is taken, which is found out after everything else.
            Err(Refusal::AlreadyExists(_)) => Ok(Answer::default()),
            answer => answer,
        }
    }

    async fn delete(&self, thing: Thing, name: &str, uid: &str) -> Result<Answer, Refusal> {
        self.delete_at(thing, name, uid, None).await
    }

    async fn delete_at(
        &self,
        thing: Thing,
        name: &str,
        uid: &str,
        version: Option<u64>,
    ) -> Result<Answer, Refusal> {
        let path = self.path(thing, name);
        let deleted = self.applier.requests.delete_at(&path, uid, version).await;
        self.deleted(thing, name, uid, deleted)
    }

    async fn force_delete(&self, pod: &PodRef) -> Result<Answer, Refusal> {
        let path = self.path(Thing::Pod, &pod.name);
        let deleted = self.applier.requests.force_delete(&path, &pod.uid).await;
        // It is Terminating already, which says nothing: the next plan must see that it is gone.
        if matches!(deleted, Ok(_) | Err(Refusal::Unavailable { .. })) {
            (self.note)(Written::Unknown(Thing::Pod));
        }
        deleted
    }

    fn deleted(
        &self,
        thing: Thing,
        name: &str,
        uid: &str,
        deleted: Result<Answer, Refusal>,
    ) -> Result<Answer, Refusal> {
        match deleted {
            Ok(answer) => {
                self.gone(thing, name, uid);
                Ok(answer)
            }
            Err(Refusal::NotFound(_)) => {
                self.gone(thing, name, uid);
                Ok(Answer::default())
            }
            Err(refusal) => Err(self.unknown(thing, refusal)),
        }
    }

    async fn patch(
        &self,
        thing: Thing,
        (name, uid): (&str, &str),
        subresource: &str,
        content: Content,
        body: &Value,
    ) -> Result<Answer, Refusal> {
        let path = format!("{}{subresource}", self.path(thing, name));
        let answer = self
            .applier
            .requests
            .patch(&path, content, to_bytes(body))
            .await;
        match answer {
            Ok(answer) => {
                self.written(thing, &answer);
                Ok(answer)
            }
            Err(Refusal::NotFound(message)) => {
                self.gone(thing, name, uid);
                Err(Refusal::Conflict(message))
            }
            Err(refusal) => Err(self.unknown(thing, refusal)),
        }
    }

    async fn workload(&self, body: &Value) -> Result<Answer, Refusal> {
        let Target { name, uid, .. } = self.target;
        self.patch(Thing::Workload, (name, uid), "", Content::MergePatch, body)
            .await
    }

    async fn revision(
        &self,
        name: &str,
        uid: &str,
        content: Content,
        body: &Value,
    ) -> Result<Answer, Refusal> {
        self.patch(Thing::Revision, (name, uid), "", content, body)
            .await
    }

    async fn pod(&self, pod: &PodRef, subresource: &str, body: &Value) -> Result<Answer, Refusal> {
        let id = (pod.name.as_str(), pod.uid.as_str());
        self.patch(Thing::Pod, id, subresource, Content::StrategicPatch, body)
            .await
    }

    async fn annotate(
        &self,
        pod: &PodRef,
        key: &str,
        value: Option<&str>,
    ) -> Result<Answer, Refusal> {
        let body = body::annotate(&pod.uid, &[(key, value)]);
        self.pod(pod, "", &body).await
    }

    async fn gate(
        &self,
        pod: &PodRef,
        closed_for: Option<&str>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let body = body::gate(pod, closed_for, now);
        self.pod(pod, "/status", &body).await
    }
}
