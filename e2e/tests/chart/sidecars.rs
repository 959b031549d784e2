//! What the chart renders for SidecarSets: the webhook that injects sidecars into pods of other controllers, and the
//! role for editors of SidecarSets.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::chart::render;
use serde_json::{Value, json};

use super::{SYSTEM, of_kind};

/// The label that decides whether a namespace's pods get sidecars.
const LABEL: &str = "gamekeeper.tkex.tencent.com/sidecars";

#[e2e::test]
async fn the_injecting_webhook_fails_closed_in_labeled_namespaces_only(
    case: &mut Case,
) -> Result<()> {
    let objects = render(&case.plane().helm, &[]).await?;
    let webhook = injecting_webhook(&objects)?;
    for (field, expected) in [
        ("failurePolicy", json!("Fail")),
        ("timeoutSeconds", json!(3)),
        ("reinvocationPolicy", json!("IfNeeded")),
        ("sideEffects", json!("None")),
        (
            "rules",
            json!([{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                "scope": "Namespaced",
            }]),
        ),
        (
            "namespaceSelector",
            json!({"matchExpressions": [
                {"key": LABEL, "operator": "In", "values": ["enabled"]},
                not_the_operators_namespace(),
            ]}),
        ),
        (
            "matchConditions",
            json!([
                {
                    "name": "not-the-operator",
                    "expression": format!("request.userInfo.username != 'system:serviceaccount:{SYSTEM}:gamekeeper'"),
                },
                {"name": "not-in-a-kube-namespace", "expression": "!request.namespace.startsWith('kube-')"},
            ]),
        ),
    ] {
        ensure!(webhook[field] == expected, "{field}: {webhook:#}");
    }
    ensure!(!has_flag_for_all_namespaces(&objects)?, "the operator has the flag by default");
    let scoped = render(&case.plane().helm, &["--set=watchNamespace=games"]).await?;
    let selector = &injecting_webhook(&scoped)?["namespaceSelector"];
    let labels = json!({"kubernetes.io/metadata.name": "games"});
    ensure!(selector["matchLabels"] == labels, "{selector:#}");
    ensure!(
        selector["matchExpressions"] == webhook["namespaceSelector"]["matchExpressions"],
        "{selector:#}"
    );
    Ok(())
}

#[e2e::test]
async fn all_namespaces_that_are_not_excluded_can_get_sidecars(case: &mut Case) -> Result<()> {
    let objects = render(&case.plane().helm, &["--set=sidecars.namespaces=All"]).await?;
    let selector = &injecting_webhook(&objects)?["namespaceSelector"];
    let expected = json!({"matchExpressions": [
        {"key": LABEL, "operator": "NotIn", "values": ["disabled"]},
        not_the_operators_namespace(),
    ]});
    ensure!(*selector == expected, "{selector:#}");
    ensure!(has_flag_for_all_namespaces(&objects)?, "the operator lacks the flag");
    // Scripts of lifecycle hooks must run even while the webhook does not, so their namespace is excluded.
    let values = "--set=sidecars.namespaces=All,lifecycleHooks.enabled=true";
    let hooks = render(&case.plane().helm, &[values]).await?;
    let namespace = of_kind(&hooks, "Namespace")[0];
    ensure!(namespace["metadata"]["labels"][LABEL] == "disabled", "{namespace:#}");
    Ok(())
}

fn not_the_operators_namespace() -> Value {
    json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SYSTEM]})
}

/// The webhook that injects sidecars.
fn injecting_webhook(objects: &[Value]) -> Result<&Value> {
    let configurations = of_kind(objects, "MutatingWebhookConfiguration").into_iter();
    let webhooks = configurations.flat_map(|it| it["webhooks"].as_array());
    let mut webhooks = webhooks.flatten();
    let found = webhooks.find(|it| it["name"] == "inject.gamekeeper.tkex.tencent.com");
    found.context("no webhook injects sidecars")
}

/// Whether the operator has the flag that lets pods of other controllers get sidecars in all namespaces.
fn has_flag_for_all_namespaces(objects: &[Value]) -> Result<bool> {
    let deployment = of_kind(objects, "Deployment")[0];
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().context("no arguments")?;
    Ok(args.contains(&json!("--sidecars-in-all-namespaces")))
}

#[e2e::test]
async fn editors_of_sidecar_sets_get_a_role_that_no_other_role_contains(
    case: &mut Case,
) -> Result<()> {
    let objects = render(&case.plane().helm, &[]).await?;
    let name = "gamekeeper-sidecar-editor";
    let roles = of_kind(&objects, "ClusterRole");
    let role = roles.iter().find(|it| it["metadata"]["name"] == name);
    let role = role.context("no role for editors")?;
    let rules = json!([{
        "apiGroups": ["tkex.tencent.com"], "resources": ["sidecarsets"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    }]);
    ensure!(role["rules"] == rules, "{role:#}");
    ensure!(!role.to_string().contains("aggregate-to"), "{role:#}");
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let bindings = of_kind(&objects, kind);
        ensure!(bindings.iter().all(|it| it["roleRef"]["name"] != name));
    }
    let without_sidecars = render(&case.plane().helm, &["--set=sidecars.enabled=false"]).await?;
    let roles = of_kind(&without_sidecars, "ClusterRole");
    ensure!(roles.iter().all(|it| it["metadata"]["name"] != name));
    Ok(())
}
