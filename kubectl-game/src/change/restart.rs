//! `restart`: new pods of the same template, through an annotation that makes it another revision.

use gamekeeper_core::api::GameStatefulSetUpdateType as UpdateType;
use gamekeeper_core::api::names::{HookPoint, WorkloadKind};
use jiff::{Timestamp, Unit};

use super::{Change, set};
use crate::error::Error;
use crate::game::Game;

/// The annotation that `kubectl rollout restart` sets.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Marks the template, where that gives new pods.
pub fn restart(game: &Game, now: Timestamp) -> Result<Change, Error> {
    let note = match game.update {
        UpdateType::RollingUpdate => None,
        UpdateType::OnDelete => {
            Some("OnDelete: each pod is recreated when it is deleted".to_owned())
        }
        UpdateType::InplaceUpdate | UpdateType::HotPatchUpdate => return Err(refusal(game)),
    };
    let mut after = game.object.clone();
    let time = now.round(Unit::Second).unwrap_or(now).to_string();
    set(
        &mut after,
        &["spec", "template", "metadata", "annotations", RESTARTED_AT],
        time,
    );
    Ok(Change {
        note,
        ..Change::new(after, "restarted")
    })
}

/// An annotation is changed in the running pod: that restarts nothing, and looks as if it had.
fn refusal(game: &Game) -> Error {
    let behind_hook = match game.has_hook(HookPoint::PreDelete) {
        true => ", each after its PreDelete hook",
        false => "",
    };
    let fix = match game.kind {
        WorkloadKind::GameDeployment => format!(
            "list the pods in spec.scaleStrategy.podsToDelete to replace them one by one{behind_hook}"
        ),
        WorkloadKind::GameStatefulSet => {
            "set updateStrategy.type to RollingUpdate, restart, and set it back when the rollout is complete"
                .to_owned()
        }
    };
    Error::Refused(format!(
        "{} has updateStrategy.type {:?}: a new annotation is written into the running pods and restarts none of them; {fix}",
        game.short_name(),
        game.update
    ))
}
