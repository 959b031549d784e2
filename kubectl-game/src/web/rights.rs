//! What the visitor may do, as the API server says.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::game::Game;
use crate::kind::singular;

/// What the visitor may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rights {
    /// The workload.
    pub workload: bool,
    /// The pods of its namespace.
    pub pods: bool,
}

impl Rights {
    /// Asks the API server. Without an answer, nothing is offered; what is tried all the same, the API server judges.
    pub async fn ask(cluster: &Cluster, game: &Game) -> Self {
        let group = gamekeeper_core::api::GROUP;
        let resource = format!("{}s", singular(game.kind));
        let workload = may_patch(cluster, group, &resource, Some(&game.name));
        let pods = may_patch(cluster, "", "pods", None);
        let (workload, pods) = tokio::join!(workload, pods);
        Rights { workload: workload.unwrap_or(false), pods: pods.unwrap_or(false) }
    }
}

/// Fails unless the API server authenticates the visitor. All authenticated users may review their own permissions.
pub async fn knows_visitor(cluster: &Cluster) -> Result<(), Error> {
    may_patch(cluster, "", "pods", None).await.map(drop)
}

async fn may_patch(
    cluster: &Cluster,
    group: &str,
    resource: &str,
    name: Option<&str>,
) -> Result<bool, Error> {
    let attributes = ResourceAttributes {
        namespace: Some(cluster.namespace.clone()),
        verb: Some("patch".to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api = cluster.access_reviews();
    let answer = cluster.send(async || api.create(&PostParams::default(), &review).await).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
