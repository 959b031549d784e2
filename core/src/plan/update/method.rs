//! How a pod gets from its revision to the update revision.

use crate::api::{InPlacePolicy, Reason};
use crate::plan::decision::Blocked;
use crate::plan::in_place;
use crate::plan::in_place::{Change, NotInPlace};
use crate::plan::observed::RevisionName;
use crate::plan::revision::Revisions;
use crate::plan::workload::{UpdateType, Workload};

/// How a pod gets to the update revision.
pub enum Method {
    /// It is deleted, and recreated.
    Recreate,
    /// Its containers are restarted.
    InPlace(Change),
    /// Its containers take the change while they run.
    HotPatch(Change),
    /// It cannot, and is not to be recreated.
    Refused(NotInPlace),
}

/// Whether a change from the stable to the update revision is refused because it cannot be made in
/// place: then new pods are made at the stable one.
pub fn refused_in_place(
    workload: &Workload,
    revisions: &Revisions,
    stable: RevisionName,
) -> Option<Blocked> {
    if recreates(workload)
        || workload.policy == InPlacePolicy::InPlaceIfPossible
        || stable == revisions.update.name()
    {
        return None;
    }
    match method_from(workload, revisions, stable) {
        Method::Refused(error) => Some(not_in_place(&error)),
        _ => None,
    }
}

/// What a user is told of a change that cannot be made in place.
pub fn not_in_place(error: &NotInPlace) -> Blocked {
    Blocked {
        reason: Reason::NotInPlace,
        message: format!(
            "{error}; revert the change, or set updateStrategy.inPlaceUpdateStrategy.policy: \
             InPlaceIfPossible or updateStrategy.type: RollingUpdate to recreate pods"
        ),
    }
}

/// Whether pods are never changed, only recreated.
fn recreates(workload: &Workload) -> bool {
    matches!(
        workload.update,
        UpdateType::RollingUpdate | UpdateType::OnDelete
    )
}

/// How pods of a revision get to the update revision.
pub fn method_from(workload: &Workload, revisions: &Revisions, from: RevisionName) -> Method {
    if recreates(workload) {
        return Method::Recreate;
    }
    let update = &revisions.update.template;
    let unknown = || NotInPlace {
        path: String::new(),
        why: format!(
            "cannot be compared with revision {:?}, which does not exist",
            from.as_str()
        ),
    };
    let change = revisions
        .get(from)
        .ok_or_else(unknown)
        .and_then(|from| in_place::between(&from.template, update));
    let hot = workload.update == UpdateType::HotPatchUpdate;
    match change {
        Ok(change) if hot && !change.resources.is_empty() => refuse_or_recreate(
            workload,
            NotInPlace {
                path: "spec.containers[].resources".to_owned(),
                why: "cannot be changed by a hot patch".to_owned(),
            },
        ),
        Ok(change) if hot => Method::HotPatch(change),
        Ok(change) => Method::InPlace(change),
        Err(error) => refuse_or_recreate(workload, error),
    }
}

/// How a pod whose kubelet is of that version, which ignores other images of native sidecars, gets to
/// the update revision; None when that is no different from other pods. Its gate would stay closed,
/// because the change would never be seen done.
pub fn on_old_kubelet(workload: &Workload, method: &Method, version: &str) -> Option<Method> {
    let Method::InPlace(change) = method else {
        return None;
    };
    let refusal = NotInPlace {
        path: change.sidecar.clone()?,
        why: format!(
            "is the image of a native sidecar, and kubelets before 1.32 do not restart these: a node has {version}"
        ),
    };
    Some(refuse_or_recreate(workload, refusal))
}

fn refuse_or_recreate(workload: &Workload, error: NotInPlace) -> Method {
    match workload.policy {
        InPlacePolicy::InPlaceOnly => Method::Refused(error),
        InPlacePolicy::InPlaceIfPossible => Method::Recreate,
    }
}
