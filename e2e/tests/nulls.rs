//! Empty fields of manifests, which are nulls: both kinds take each null that a Deployment takes, and it means an absent
//! field.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use e2e::workload::pod_schema::{PodSchema, Shape, TEMPLATE};
use http::Request;
use serde_json::{Map, Value, json};

const KINDS: [(&str, &str, &str); 2] = [
    ("tkex.tencent.com/v1alpha1", "GameDeployment", "gamedeployments"),
    ("tkex.tencent.com/v1alpha1", "GameStatefulSet", "gamestatefulsets"),
];

/// What optional fields of the deepest objects are.
#[derive(Clone, Copy, PartialEq)]
enum Optional {
    Absent,
    Null,
}

#[e2e::test]
async fn each_null_that_a_deployment_takes_is_taken(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let schema = PodSchema::read(case.plane()).await?;
    let plain = json!({"metadata": {"labels": {"app": "null"}},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]}});
    let mut nulls = 0;
    for depth in 1.. {
        let template = |optional| with_labels(object(&schema, TEMPLATE, depth, optional));
        let (absent, null) = (template(Optional::Absent), template(Optional::Null));
        if absent == null {
            break;
        }
        nulls += count_nulls(&null);
        // Not each combination of fields is valid, but a null must not make a difference.
        let deployment = ("apps/v1", "Deployment", "deployments");
        let refused_anyway =
            causes(server_side_apply(case, deployment, "new", &absent, true).await);
        let refused = causes(server_side_apply(case, deployment, "new", &null, true).await);
        let because_of_nulls: Vec<_> = refused.difference(&refused_anyway).collect();
        ensure!(because_of_nulls.is_empty(), "a Deployment takes not all: {because_of_nulls:#?}");
        for kind in KINDS {
            server_side_apply(case, kind, "new", &null, true).await?;
            let existing = format!("existing-{depth}");
            server_side_apply(case, kind, &existing, &plain, false).await?;
            server_side_apply(case, kind, &existing, &null, false).await?;
            // And again, which changes nothing.
            server_side_apply(case, kind, &existing, &null, false).await?;
        }
    }
    ensure!(nulls > 500, "only {nulls} nulls");
    Ok(())
}

/// An object with all objects down to a depth. Those of this depth have their optional fields, or not.
fn object(schema: &PodSchema, definition: &str, depth: usize, optional: Optional) -> Value {
    let mut fields = Map::new();
    for field in schema.fields(definition) {
        let value = match field.shape {
            _ if !field.required && depth == 0 && optional == Optional::Null => Value::Null,
            _ if !field.required && depth == 0 => continue,
            Shape::Scalar(_) if !field.required => continue,
            Shape::Scalar(Value::Number(_)) => json!(1),
            Shape::Scalar(Value::String(zero)) if zero == "0" => json!("1"),
            Shape::Scalar(Value::String(_)) => json!("x"),
            Shape::Scalar(zero) => zero,
            Shape::Object(inner) => {
                object(schema, inner, depth.saturating_sub(1), inner_of(depth, optional))
            }
            Shape::Objects(inner) => {
                json!([object(schema, inner, depth.saturating_sub(1), inner_of(depth, optional))])
            }
            Shape::Map if optional == Optional::Null && depth == 1 => json!({"key": null}),
            Shape::Map if depth == 1 => json!({"key": "1"}),
            Shape::Map | Shape::Other if !field.required => continue,
            Shape::Map => json!({}),
            Shape::Other => json!([]),
        };
        fields.insert(field.name.to_owned(), value);
    }
    Value::Object(fields)
}

/// What is below the deepest objects has required fields only.
fn inner_of(depth: usize, optional: Optional) -> Optional {
    if depth == 0 { Optional::Absent } else { optional }
}

fn with_labels(mut template: Value) -> Value {
    if !template["metadata"].is_object() {
        template["metadata"] = json!({});
    }
    template["metadata"]["labels"] = json!({"app": "null"});
    if !template["spec"].is_object() {
        template["spec"] = json!({});
    }
    if !template["spec"]["containers"].is_array() {
        template["spec"]["containers"] = json!([{"name": "game", "image": "game:v1"}]);
    }
    template
}

fn count_nulls(value: &Value) -> usize {
    match value {
        Value::Null => 1,
        Value::Object(fields) => fields.values().map(count_nulls).sum(),
        Value::Array(items) => items.iter().map(count_nulls).sum(),
        _ => 0,
    }
}

async fn server_side_apply(
    case: &Case,
    (api, kind, plural): (&str, &str, &str),
    name: &str,
    template: &Value,
    dry_run: bool,
) -> Result<Value> {
    let expressions = if count_nulls(template) > 0 { Value::Null } else { json!([]) };
    let object = json!({
        "apiVersion": api, "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": 0, "template": template,
            "selector": {"matchLabels": {"app": "null"}, "matchExpressions": expressions},
        },
    });
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    let path = format!(
        "/apis/{api}/namespaces/{}/{plural}/{name}?fieldManager=test&force=true{dry_run}",
        case.namespace
    );
    let request = Request::patch(path)
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())?;
    let applied = case.plane().client().request::<Value>(request).await;
    applied.with_context(|| format!("{kind} {name}: {template}"))
}

/// What the API server says is wrong.
fn causes(applied: Result<Value>) -> BTreeSet<String> {
    let Err(error) = applied else {
        return BTreeSet::new();
    };
    let Some(kube::Error::Api(status)) = error.downcast_ref() else {
        return BTreeSet::from([format!("{error:#}")]);
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut causes: BTreeSet<String> =
        causes.map(|it| format!("{} {}", it.field, it.message)).collect();
    if causes.is_empty() {
        causes.insert(status.message.clone());
    }
    causes
}

#[e2e::test]
async fn kubectl_applies_nulls_to_new_and_existing_workloads(case: &mut Case) -> Result<()> {
    check_kubectl(case, Game::in_place(1)).await
}

#[e2e::test]
async fn kubectl_applies_nulls_to_new_and_existing_sets(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    check_kubectl(case, Game::parallel(1).updated_by("InplaceUpdate")).await
}

async fn check_kubectl(case: &mut Case, game: Game) -> Result<()> {
    let schema = PodSchema::read(case.plane()).await?;
    let with_nulls = |game: Game| -> Result<Value> {
        let mut game = Value::from(game);
        let template = &mut game["spec"]["template"];
        let places = [
            ("/metadata", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
            ("/spec", "io.k8s.api.core.v1.PodSpec"),
            ("/spec/containers/0", "io.k8s.api.core.v1.Container"),
        ];
        for (pointer, definition) in places {
            let place = template.pointer_mut(pointer).and_then(Value::as_object_mut);
            let Some(place) = place else { bail!("no {pointer}") };
            for field in schema.fields(definition) {
                place.entry(field.name).or_insert(Value::Null);
            }
        }
        Ok(game)
    };
    // An existing workload: nothing changes.
    case.apply(game.clone()).await?;
    let before = case.until_settled(1).await?;
    for apply in ["client-side", "server-side"] {
        let manifest = with_nulls(game.clone())?;
        match apply {
            "client-side" => case.apply(&manifest).await?,
            _ => case.server_side_apply(&manifest).await?,
        };
        case.until_planned(&case.workload()).await?;
        let view = case.until_settled(1).await?;
        let revision = "/status/updateRevision";
        view.ensure(view.text(revision) == before.text(revision)).context(apply)?;
        view.ensure(view.pods[0].uid() == before.pods[0].uid()).context(apply)?;
    }
    // With nulls, a change is still made.
    let updated = with_nulls(game.clone().image("game:v2"))?;
    case.server_side_apply(&updated).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.ready_with("game:v2") == 1)?;
    // A new workload.
    let workload = case.workload();
    case.kubectl(&["delete", &workload]).await?;
    case.server_side_apply(&with_nulls(game)?).await?;
    case.until_settled(1).await?;
    Ok(())
}
