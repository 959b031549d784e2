//! A namespace as it is in a company's cluster: a mesh injects its proxy, a policy changes pods, and a quota and a
//! LimitRange bound what they request.

use anyhow::{Result, ensure};
use serde_json::json;

use super::interference::Interference;
use crate::case::Case;
use crate::workload::view::MESH_PROXY;

/// Puts the test's namespace into such a cluster, until the returned policy ends. The quota has room for `pods`.
pub async fn crowd(case: &mut Case, pods: u32) -> Result<Interference> {
    let limits = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"},
        "spec": {"limits": [{
            "type": "Container",
            "default": {"cpu": "200m", "memory": "64Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
        }]},
    });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "exact"},
        "spec": {"hard": {
            "pods": pods.to_string(), "requests.cpu": format!("{}m", pods * 110),
            "limits.cpu": "10", "count/controllerrevisions.apps": "5",
        }},
    });
    for object in [limits, quota] {
        case.apply(object).await?;
    }
    case.eventually("the quota is in force", async || {
        let quota = case.get("resourcequotas/exact").await?;
        // Until the controller knows how much of everything is used, creations are refused.
        let keys = |field: &str| quota["status"][field].as_object().map_or(0, |it| it.len());
        ensure!(keys("used") == 4 && keys("hard") == 4, "{quota:#}");
        Ok(())
    })
    .await?;
    case.has_mesh = true;
    // The proxy comes first, as the containers of some meshes do.
    let resources = "{'requests': {'cpu': '10m'}, 'limits': {'cpu': '20m'}}";
    let proxy = format!(
        "{{'name': dyn('{MESH_PROXY}'), 'image': dyn('mesh:1'), 'resources': dyn({resources})}}"
    );
    let patches = format!(
        "[JSONPatch{{op: 'add', path: '/spec/containers/0', value: {proxy}}}, \
          JSONPatch{{op: 'add', path: '/metadata/labels/team', value: 'games'}}, \
          JSONPatch{{op: 'replace', path: '/spec/terminationGracePeriodSeconds', value: 20}}]"
    );
    Interference::change(case, ("", "pods", &["CREATE"]), &patches).await
}
