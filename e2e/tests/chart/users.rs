//! What users may do with the operator's kinds who have Kubernetes' roles view, edit or admin.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};

const ROLES: [&str; 3] = ["view", "edit", "admin"];
const READERS: [bool; 3] = [true, true, true];
const WRITERS: [bool; 3] = [false, true, true];
const NONE: [bool; 3] = [false, false, false];

/// Each of the roles, bound in the namespace of the test: whether it allows a verb on a resource.
const IN_A_NAMESPACE: [(&str, &str, [bool; 3]); 18] = [
    ("get", "gamedeployments", READERS),
    ("list", "gamestatefulsets", READERS),
    ("watch", "hookruns", READERS),
    ("list", "hooktemplates", READERS),
    ("get", "gamedeployments/scale", READERS),
    ("create", "gamedeployments", WRITERS),
    ("patch", "gamestatefulsets", WRITERS),
    ("delete", "gamedeployments", WRITERS),
    ("update", "gamestatefulsets/scale", WRITERS),
    ("create", "hookruns", WRITERS),
    ("delete", "hookruns", WRITERS),
    ("update", "hooktemplates", WRITERS),
    // Only the operator writes these.
    ("patch", "gamedeployments/status", NONE),
    ("update", "hookruns/status", NONE),
    ("update", "gamedeployments/finalizers", NONE),
    // Cluster-scoped kinds run containers in all namespaces, and scripts on all nodes.
    ("list", "sidecarsets", NONE),
    ("create", "sidecarsets", NONE),
    ("patch", "clusters", NONE),
];

/// The same for roles that are bound in the whole cluster.
const IN_THE_CLUSTER: [(&str, &str, [bool; 3]); 5] = [
    ("list", "gamedeployments", READERS),
    ("list", "sidecarsets", READERS),
    // Without lifecycle hooks, the kind Cluster is not installed.
    ("get", "clusters", NONE),
    ("update", "sidecarsets", NONE),
    ("create", "clusters", NONE),
];

#[e2e::test]
async fn the_roles_of_kubernetes_cover_the_kinds(case: &mut Case) -> Result<()> {
    let (plane, namespace) = (case.plane(), case.namespace.clone());
    for role in ROLES {
        let user = format!("{role}-{namespace}");
        let bind = format!("--clusterrole={role} --user={user}");
        plane.kubectl_line(&format!("create rolebinding {role} {bind} -n {namespace}")).await?;
        let everywhere = format!("--clusterrole={role} --user=all-{user}");
        plane.kubectl_line(&format!("create clusterrolebinding all-{user} {everywhere}")).await?;
    }
    for (prefix, table) in [("", &IN_A_NAMESPACE[..]), ("all-", &IN_THE_CLUSTER[..])] {
        for (verb, resource, allowed) in table {
            for (role, allowed) in ROLES.iter().zip(allowed) {
                let user = format!("{prefix}{role}-{namespace}");
                // A request for a cluster-scoped kind names no namespace.
                let is_cluster_scoped = ["sidecarsets", "clusters"].contains(resource);
                let scope = match is_cluster_scoped {
                    true => "--all-namespaces".to_owned(),
                    false => format!("-n {namespace}"),
                };
                let resource = match resource.split_once('/') {
                    Some((kind, sub)) => format!("{kind}.tkex.tencent.com --subresource={sub}"),
                    None => format!("{resource}.tkex.tencent.com"),
                };
                let line = format!("auth can-i {verb} {resource} {scope} --as {user}");
                let description = format!("{user} {verb} {resource}: {allowed}");
                case.eventually(&description, async || {
                    let is_allowed = plane.kubectl_line(&line).await.is_ok();
                    ensure!(is_allowed == *allowed, "{is_allowed}");
                    Ok(())
                })
                .await?;
            }
        }
    }
    users_read_and_change(case).await?;
    for role in ROLES {
        let binding = format!("delete clusterrolebinding all-{role}-{namespace}");
        case.plane().kubectl_line(&binding).await?;
    }
    Ok(())
}

/// The same as a user sees it.
async fn users_read_and_change(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(1).pre_delete("test")).await?;
    case.until_settled(1).await?;
    let (plane, namespace) = (case.plane(), &case.namespace);
    for role in ROLES {
        let as_user = format!("-n {namespace} --as {role}-{namespace}");
        let games = plane.kubectl_line(&format!("get gamedeployments {as_user}")).await?;
        ensure!(games.contains(GAME), "{role}: {games}");
        let kinds = "gamestatefulsets,hookruns,hooktemplates";
        let others = plane.kubectl_line(&format!("get {kinds} -o name {as_user}")).await?;
        ensure!(others.contains("hooktemplate.tkex.tencent.com/test"), "{role}: {others}");
        let scale = format!("scale gamedeployment/{GAME} --replicas=2 {as_user}");
        let scaled = plane.kubectl_line(&scale).await;
        ensure!(scaled.is_ok() == (role != "view"), "{role}: {scaled:?}");
    }
    case.until_settled(2).await?;
    Ok(())
}
