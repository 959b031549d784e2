//! `restart`: an annotation makes the template a new revision, for which all pods are recreated.

use gamekeeper_core::api::UpdateStrategyType as UpdateType;
use gamekeeper_core::api::names::{HookPoint, WorkloadKind};
use jiff::{Timestamp, Unit};

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::game::Game;

/// The annotation that `kubectl rollout restart` sets.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Annotates the template. Refused where pods would not be recreated.
pub fn restart(game: &Game, now: Timestamp) -> Result<Change, Error> {
    let note = match game.update {
        UpdateType::RollingUpdate => None,
        UpdateType::OnDelete => {
            Some("OnDelete: each pod is recreated when it is deleted".to_owned())
        }
        UpdateType::InplaceUpdate | UpdateType::HotPatchUpdate => return refuse_restart(game),
    };
    let mut after = game.object.clone();
    let time = now.round(Unit::Second).unwrap_or(now).to_string();
    let path = ["spec", "template", "metadata", "annotations", RESTARTED_AT];
    set(&mut after, &path, time);
    Ok(Change { note, ..Change::new(after, "restarted") })
}

/// In-place updates write the annotation into the running pods, which does not restart them.
fn refuse_restart<T>(game: &Game) -> Result<T, Error> {
    let after_hook = match game.has_hook(HookPoint::PreDelete) {
        true => ", each after its PreDelete hook",
        false => "",
    };
    let fix = match game.kind {
        WorkloadKind::GameDeployment => format!(
            "list the pods in spec.scaleStrategy.podsToDelete to replace them within maxUnavailable{after_hook}"
        ),
        WorkloadKind::GameStatefulSet => {
            "set updateStrategy.type to RollingUpdate, restart, and set it back when the rollout is complete"
                .to_owned()
        }
    };
    refuse(format!(
        "{} has updateStrategy.type {:?}: a new annotation is written into the running pods and restarts none of them; {fix}",
        game.short_name(),
        game.update
    ))
}
