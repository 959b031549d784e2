//! Translates the planner's writes into those of the model.

use std::rc::Rc;

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{self, HookPoint};
use gamekeeper_core::observed;
use gamekeeper_core::write;
use gamekeeper_core::write::Owned;
use kube::ResourceExt;
use serde_json::Value;

use super::naming::*;
use super::{Translator, View};
use crate::state::*;

/// What a write requires of its pod, which is in the view.
fn unchanged(pod: &observed::PodRef, view: &View) -> Unchanged {
    if pod.version.is_none() {
        return Unchanged::Any;
    }
    let uid = parse_uid(&pod.uid);
    let seen = view.pods.iter().find(|it| it.uid == uid).expect("a pod of the view");
    Unchanged::Since(Rc::new(seen.clone()))
}

/// The parts of a PodDisruptionBudget that the model knows.
fn budget_of(budget: &Value) -> Budget {
    let spec = &budget["spec"];
    let max_unavailable = spec["maxUnavailable"].as_u64();
    if max_unavailable.is_none() {
        assert_eq!(spec["minAvailable"], i32::MAX, "{spec}");
    }
    let selected = &spec["selector"]["matchLabels"];
    let labels = selected.as_object().expect("labels");
    assert!(labels.keys().eq([names::GUARDED_LABEL]), "{selected}");
    Budget {
        max_unavailable: max_unavailable.map(|max| max as u8),
        unready_evictable: spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow",
    }
}

impl Translator {
    /// Translates a write. `view` is what the caches showed when it was planned.
    pub fn write(&self, change: &write::Change, view: &View) -> Write {
        use write::Change;
        let rev = |name: &str| self.revision_of(name).expect("a revision");
        match change {
            Change::PatchWorkload(patch) => Write::Workload(self.workload_change(patch)),
            Change::CreateRevision(it) => Write::CreateRevision(rev(&it.name)),
            Change::RenumberRevision { name, .. } => Write::RenumberRevision(rev(name)),
            Change::DryRun { revision, .. } => Write::DryRun(rev(revision)),
            Change::CreatePod(new) => self.created_pod(new),
            Change::DeletePod(it) => {
                Write::DeletePod(parse_uid(&it.pod.uid), it.reason, unchanged(&it.pod, view))
            }
            Change::SetMetadata { pod, .. } => self.metadata(change, pod, view),
            // In the model, the check whether the guard is in force is part of this write.
            Change::ApplyBudget(it) => Write::Budget(Some(budget_of(&it.budget))),
            Change::CreateHookRun(run) => Write::CreateRun(self.run_id(run)),
            Change::Delete { kind, name, uid } => match kind {
                Owned::Revision => Write::DeleteRevision(rev(name)),
                Owned::Budget => Write::Budget(None),
                Owned::HookRun | Owned::Script => {
                    let runs = view.runs.iter().map(|run| &run.id);
                    let mut runs = runs.filter(|id| run_uid(id) == *uid);
                    let id = runs.next().unwrap_or_else(|| panic!("no run {name}"));
                    Write::DeleteRun(id.clone())
                }
            },
            Change::SetGate { pod, closed_for: Some(revision), then } => {
                let then = then.as_ref().map(|it| Box::new(self.patch(it, view)));
                let seen = unchanged(pod, view);
                Write::CloseGate(parse_uid(&pod.uid), rev(revision), then, seen)
            }
            Change::SetGate { pod, closed_for: None, .. } => Write::OpenGate(parse_uid(&pod.uid)),
            Change::PatchInPlace(patch) => Write::Patch(Box::new(self.patch(patch, view))),
            Change::AdoptPod(pod) => Write::Adopt(parse_uid(&pod.uid)),
            Change::AdoptRevision { .. }
            | Change::ReleasePod(_)
            | Change::PatchSidecars(_)
            | Change::PatchNode(_)
            | Change::AdmitNode { .. }
            | Change::ResizePod { .. }
            | Change::ForceDeletePod(_)
            | Change::CreateClaim(_)
            | Change::OwnClaim(_)
            | Change::ProbeGuard { .. } => panic!("not part of the model: {change:?}"),
        }
    }

    /// Translates a change of labels and annotations. Each such write of the planner has one purpose.
    fn metadata(&self, change: &write::Change, pod: &observed::PodRef, view: &View) -> Write {
        let uid = parse_uid(&pod.uid);
        if let Some(label) = change.label(names::GUARDED_LABEL) {
            return Write::Label(uid, label.is_some());
        }
        if let Some(requested) = change.annotation(names::MOVE_ANNOTATION) {
            return Write::RequestMove(uid, requested.is_some());
        }
        if let Some(Some(record)) = change.annotation(names::IN_PLACE_RECORD) {
            let record = serde_json::from_str(record).expect("a record");
            return Write::Finish(uid, self.record_of(&record), unchanged(pod, view));
        }
        let since = change.annotation(names::WAITING_SINCE_ANNOTATION).flatten();
        let since = since.map(|it| time_of(it.parse().expect("a time")));
        match change.annotation(names::DELETING_ANNOTATION) {
            Some(Some(_)) => Write::Mark(uid, since),
            Some(None) => Write::Unmark(uid),
            None => panic!("not part of the model: {change:?}"),
        }
    }

    fn created_pod(&self, new: &write::NewPod) -> Write {
        let pod = new.pod.parse();
        Write::CreatePod {
            rev: self.revision_of(&new.revision).expect("a revision"),
            gate: new.has_gate,
            ordinal: self.stateful_set.map(|_| parse_name(&new.name)),
            index: pod["metadata"]["annotations"][names::INDEX_ID]
                .as_str()
                .map(|index| index.parse().expect("a small index")),
            sidecar: self.sets.injected(&pod),
        }
    }

    fn workload_change(&self, patch: &write::WorkloadPatch) -> WorkloadChange {
        let annotation = |key: &str| {
            let mut annotations = patch.annotations.iter();
            let (_, text) = annotations.find(|(name, _)| name == key)?;
            Some(text.as_deref().map_or(0, |text| self.text_id(text)))
        };
        let pods_to_delete = patch.pods_to_delete.as_ref();
        WorkloadChange {
            paused: patch.paused,
            pause_annotation: annotation(names::PAUSE_ANNOTATION),
            retry_annotation: annotation(names::RETRY_ANNOTATION),
            promote_annotation: annotation(names::PROMOTE_ANNOTATION),
            retry_off: patch.retry_off.iter().fold(0, |all, point| all | retry_bit(*point)),
            finalizer: patch
                .finalizers
                .as_ref()
                .map(|all| all.iter().any(|it| it == names::GUARD_FINALIZER)),
            pods_to_delete: pods_to_delete
                .map(|names| names.iter().map(|name| parse_name(name)).collect()),
        }
    }

    fn patch(&self, patch: &write::InPlacePatch, view: &View) -> Patch {
        let annotation = |key: &str| patch.annotations.iter().find(|(name, _)| name == key);
        let image = |name: &str| {
            let found = patch.images.iter().find(|it| it.name == name)?;
            Some((rev_of_image(&found.from), rev_of_image(&found.to)))
        };
        let (token, mark) = self.sets.marks_of_patch(patch);
        Patch {
            pod: parse_uid(&patch.pod.uid),
            unchanged: unchanged(&patch.pod, view),
            from_rev: self.revision_of(&patch.from_revision).expect("a revision"),
            rev: self.revision_of(&patch.record.revision).expect("a revision"),
            images: CONTAINERS.map(image),
            unmark: annotation(names::DELETING_ANNOTATION).is_some(),
            hot: annotation(names::HOT_PATCH_ANNOTATION).map(|(_, value)| value.is_some()),
            record: self.record_of(&patch.record),
            token,
            mark,
        }
    }

    fn record_of(&self, record: &observed::InPlaceRecord) -> Record {
        let from = |change: &observed::ContainerChange| Origin {
            image: rev_of_image(&change.from_image),
            restarts: (!change.from_container_id.is_empty())
                .then_some(change.from_restart_count as u8),
            unfinished: change.from_unfinished,
            turn: match &change.turn {
                observed::Turn::Set => Turn::Set,
                observed::Turn::Next(image) => Turn::Next(rev_of_image(image)),
                observed::Turn::Passed => Turn::Passed,
            },
        };
        Record {
            rev: self.revision_of(&record.revision).expect("a revision"),
            closed_at: record.gate_closed_at.map(closing_at),
            patched_at: time_of(record.patched_at),
            hot: record.hot,
            done: record.done,
            sidecar: self.sets.recorded(record),
            from: CONTAINERS.map(|name| Some(from(record.containers.get(name)?))),
        }
    }

    fn run_id(&self, run: &HookRun) -> RunId {
        let annotation = |key: &str| run.annotations().get(key).map(String::as_str);
        let label = |key: &str| run.labels().get(key).map(String::as_str);
        let kind = self.kind();
        let point = label(kind.type_label()).and_then(HookPoint::parse).expect("a point");
        let (revision, name) = if point == HookPoint::Step {
            let index = label(names::RUN_STEP_LABEL).and_then(|it| it.parse().ok());
            (label(kind.revision_label()), index)
        } else {
            let name = label(names::RUN_INSTANCE_LABEL).map(parse_instance);
            (label(names::RUN_POD_REVISION_LABEL), name)
        };
        let hash = annotation(names::RUN_HOOK_HASH).expect("a hash");
        let target = annotation(names::RUN_TARGET).map(|it| self.sets.parse_target(it));
        let id = RunId {
            point,
            rev: revision.and_then(|it| self.revision_of(it)).expect("a revision"),
            name: name.expect("a pod or step"),
            pod: annotation(names::RUN_POD_UID).map(parse_uid),
            target: target.and_then(|(it, _)| self.revision_of(it)),
            sidecars: target.and_then(|(_, sidecars)| sidecars),
            changes: annotation(names::RUN_CHANGES).map(parse_changes),
            hook: (0..=8)
                .find(|version| hook_hash(*version) == hash)
                .expect("a version of the hook"),
            generation: annotation(names::RUN_GENERATION)
                .and_then(|it| it.parse().ok())
                .expect("a generation"),
        };
        let translated_back = self.run(&Run {
            id: id.clone(),
            phase: gamekeeper_core::api::HookPhase::Pending,
            finished: 0,
        });
        assert_eq!(translated_back.metadata.name, run.metadata.name, "{id:?}");
        assert_eq!(translated_back.metadata.annotations, run.metadata.annotations);
        id
    }
}
