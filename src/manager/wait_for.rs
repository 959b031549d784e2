//! `gamekeeper wait-for`: waits until the cluster is ready, or until an operator leads. The chart's bootstrap hooks
//! run this command first, so that the images of their scripts need no client for the API server.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::ListParams;
use kube::{Api, Client, Config, ResourceExt};
use tokio::time::sleep;

use super::RunError;
use crate::metrics::Counters;
use crate::runtime::client::client;
use crate::runtime::fence::Fence;
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::causes::with_causes;

/// The time between two checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// A lease that has not been renewed for this long is not held by a running operator.
const MAX_LEASE_AGE: SignedDuration = SignedDuration::from_secs(15);
/// The kinds that the chart always installs.
const RESOURCES: [&str; 4] = ["gamedeployments", "gamestatefulsets", "hookruns", "hooktemplates"];

/// Flags of `gamekeeper wait-for`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What to wait for.
    #[arg(value_enum)]
    what: Goal,
    /// Name of the operator's lease.
    #[arg(long, env = "GAMEKEEPER_LEASE_NAME", default_value = "gamekeeper")]
    lease_name: String,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Goal {
    /// The API server serves the custom resources, and all nodes are ready.
    Cluster,
    /// An operator holds the lease.
    Leader,
}

/// Waits, and prints what is missing whenever that changes.
///
/// # Errors
/// If there is no cluster configuration.
pub async fn wait(options: &Options) -> Result<(), RunError> {
    // Fails only if a crypto provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::infer().await?;
    let client = client(&config, Arc::clone(&Fence::always_open()), &Counters::default().requests)?;
    let mut last = None;
    loop {
        let checked = match options.what {
            Goal::Cluster => check_cluster(&client).await,
            Goal::Leader => check_leader(&client, &options.lease_name).await,
        };
        let missing = checked.unwrap_or_else(|error| Some(with_causes(&error)));
        let Some(missing) = missing else {
            return Ok(());
        };
        if last.as_ref() != Some(&missing) {
            println!("waiting: {missing}");
        }
        last = Some(missing);
        sleep(INTERVAL).await;
    }
}

/// What the cluster still lacks; None if it is ready.
async fn check_cluster(client: &Client) -> Result<Option<String>, kube::Error> {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    let path = format!("/apis/{group}/{version}");
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    let served: APIResourceList = client.request(request).await?;
    if let Some(missing) = why_not_served(&served) {
        return Ok(Some(missing));
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await?;
    Ok(why_not_ready(&nodes.items))
}

/// Why no operator leads; None if one does.
async fn check_leader(client: &Client, lease: &str) -> Result<Option<String>, kube::Error> {
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease = leases.get_opt(lease).await?;
    Ok(why_not_led(lease.as_ref(), Timestamp::now()))
}

fn why_not_served(served: &APIResourceList) -> Option<String> {
    let is_served = |wanted: &str| served.resources.iter().any(|it| it.name == wanted);
    let missing = RESOURCES.into_iter().find(|it| !is_served(it));
    missing.map(|name| format!("the API server does not serve {name} of {API_VERSION} yet"))
}

fn why_not_ready(nodes: &[Node]) -> Option<String> {
    if nodes.is_empty() {
        return Some("there is no node".to_owned());
    }
    let is_ready = |node: &&Node| {
        let status = node.status.as_ref();
        let mut conditions = status.into_iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let node = nodes.iter().find(|node| !is_ready(node))?;
    Some(format!("node {} is not ready", node.name_any()))
}

fn why_not_led(lease: Option<&Lease>, now: Timestamp) -> Option<String> {
    let spec = lease.and_then(|it| it.spec.as_ref());
    let holder = spec.and_then(|it| it.holder_identity.as_deref());
    let renewed = spec.and_then(|it| it.renew_time.as_ref());
    let is_held = holder.is_some_and(|it| !it.is_empty())
        && renewed.is_some_and(|it| now.duration_since(it.0) < MAX_LEASE_AGE);
    (!is_held).then(|| "no operator holds the lease".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_custom_resources_must_be_served() {
        let served = |names: &[&str]| -> APIResourceList {
            let resource = |name: &&str| {
                json!({
                    "name": name, "kind": "", "namespaced": true, "singularName": "", "verbs": [],
                })
            };
            let resources: Vec<Value> = names.iter().map(resource).collect();
            let list = json!({"groupVersion": API_VERSION, "resources": resources});
            serde_json::from_value(list).expect("a list")
        };
        assert_eq!(why_not_served(&served(&RESOURCES)), None);
        assert_eq!(
            why_not_served(&served(&RESOURCES[..3])).as_deref(),
            Some("the API server does not serve hooktemplates of tkex.tencent.com/v1alpha1 yet")
        );
    }

    #[test]
    fn all_nodes_must_be_ready() {
        let node = |name: &str, ready: &str| -> Node {
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
            serde_json::from_value(node).expect("a node")
        };
        assert!(why_not_ready(&[]).is_some());
        assert_eq!(why_not_ready(&[node("a", "True")]), None);
        let nodes = [node("a", "True"), node("b", "Unknown")];
        assert_eq!(why_not_ready(&nodes).as_deref(), Some("node b is not ready"));
    }

    #[test]
    fn the_lease_must_be_held_and_renewed() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let lease = |holder: &str, renewed: &str| -> Lease {
            let spec = json!({"holderIdentity": holder, "renewTime": renewed});
            serde_json::from_value(json!({"spec": spec})).expect("a lease")
        };
        assert!(why_not_led(None, now).is_some());
        assert!(why_not_led(Some(&lease("", "2026-01-01T00:00:58.000000Z")), now).is_some());
        assert!(why_not_led(Some(&lease("a", "2026-01-01T00:00:01.000000Z")), now).is_some());
        let held = lease("a", "2026-01-01T00:00:58.000000Z");
        assert_eq!(why_not_led(Some(&held), now), None);
    }
}
