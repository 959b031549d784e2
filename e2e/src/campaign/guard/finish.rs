//! After the matches: with guarded pods, all drains and deletions must complete on their own.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::StatusCode;

use super::actors::{Actor, Scene, running};
use crate::cluster::control_plane::ControlPlane;
use crate::wait::eventually;

/// How long each wait may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until the workload has settled, deletes it, and waits until its pods have ended. If a client has deleted the
/// workload or its namespace, only waits until that deletion is complete.
pub(super) async fn finish(scene: &Scene<'_>, deleter: Option<Actor>) -> Result<()> {
    let case = scene.case;
    let delete_rival = ["delete", "pod", "rival", "--ignore-not-found", "--wait=false"];
    case.kubectl(&delete_rival).await?;
    let workload = scene.variant.workload(scene.kind);
    match deleter {
        Some(Actor::DeleteNamespace) => {
            let namespace = format!("/api/v1/namespaces/{}", case.namespace);
            until_absent(case.plane(), &namespace).await
        }
        Some(_) => until_deleted(scene).await,
        None => {
            eventually("the workload has settled", LIMIT, async || {
                let view = case.view().await?;
                view.ensure(view.is_settled(view.number("/spec/replicas")))
            })
            .await?;
            case.kubectl(&["delete", &workload, "--wait=false"]).await?;
            until_deleted(scene).await
        }
    }
}

async fn until_deleted(scene: &Scene<'_>) -> Result<()> {
    let case = scene.case;
    until_absent(case.plane(), &scene.variant.path(case)).await?;
    eventually("the workload's pods have ended", LIMIT, async || {
        let running = running(case).await?.len();
        ensure!(running == 0, "{running} pods run");
        Ok(())
    })
    .await
}

/// Waits until an object no longer exists.
async fn until_absent(plane: &ControlPlane, path: &str) -> Result<()> {
    eventually(&format!("{path} is deleted"), LIMIT, async || {
        let Err(error) = plane.get(path).await else {
            anyhow::bail!("it still exists");
        };
        let api = error.downcast_ref::<kube::Error>();
        let is_absent = matches!(
            api,
            Some(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16()
        );
        ensure!(is_absent, "{error:#}");
        Ok(())
    })
    .await
}
