//! Defaults of pod templates: the planner knows those of the API server, so templates that differ only in them have the
//! same revision.
//!
//! `WRITE_DEFAULTS=1` writes what this version of Kubernetes shows into the planner's table.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::addons::defaulted::Defaulted;
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::workload::manifest::Game;
use e2e::workload::pod_schema::{PodSchema, Shape, TEMPLATE};
use e2e::workload::view::View;
use e2e::workload::{GAME, SET};
use gamekeeper_core::revision::{canonical, pull_policy};
use serde_json::{Map, Value, json};

/// The planner's table.
const TABLE: &str = "core/src/revision/defaults.txt";
/// Fields whose defaults depend on other fields; the planner has rules for them.
const CONDITIONAL: [&str; 2] = ["imagePullPolicy", "pullPolicy"];

/// A field of a template, and the values that mean the same as its absence.
struct Seen {
    /// A JSON pointer to the field. Lists have one item.
    pointer: String,
    /// `PARENT.FIELD`.
    key: String,
    values: Vec<Value>,
    /// A zero that means something else.
    zero: Option<Value>,
}

#[e2e::test]
async fn the_planner_knows_every_default_of_the_api_server(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let seen = see_defaults(case).await?;
    ensure!(seen.len() > 500, "only {} fields", seen.len());
    if std::env::var_os("WRITE_DEFAULTS").is_some() {
        return write_table(&seen);
    }
    let mut wrong = Vec::new();
    for Seen { pointer, values, zero, .. } in &seen {
        let is_absent = |value: &Value| {
            canonical(&template_with(pointer, Some(value)))
                == canonical(&template_with(pointer, None))
        };
        let unknown = values.iter().filter(|value| !is_absent(value));
        wrong.extend(unknown.map(|value| format!("{pointer}: {value} is the same as absent")));
        let confused = zero.iter().filter(|zero| is_absent(zero));
        wrong.extend(confused.map(|zero| format!("{pointer}: {zero} is not the same as absent")));
    }
    let wrong = wrong.join("\n");
    ensure!(
        wrong.is_empty(),
        "{TABLE} differs from the API server; WRITE_DEFAULTS=1 adds to it:\n{wrong}"
    );
    Ok(())
}

/// Asks the API server about each field.
async fn see_defaults(case: &Case) -> Result<Vec<Seen>> {
    let schema = PodSchema::read(case.plane()).await?;
    let webhook = Defaulted::install(case).await?;
    // In the template of each depth, all objects down to this depth exist, and are empty.
    let mut by_depth: Vec<Value> = Vec::new();
    let mut last = Value::Null;
    for depth in 0.. {
        let template = skeleton(&schema, TEMPLATE, depth, false);
        if template == last {
            break;
        }
        by_depth.push(webhook.template(&template).await?);
        last = template;
    }
    let zeros = webhook.template(&skeleton(&schema, TEMPLATE, usize::MAX, true)).await?;
    // Some defaults are set in pods only.
    let pod = webhook.pod(&json!({"containers": [{"name": "game", "image": "game"}]})).await?;
    webhook.remove().await?;
    let at_depth = |depth: usize| &by_depth[depth.min(by_depth.len() - 1)];
    let mut seen = Vec::new();
    visit(&schema, TEMPLATE, "", "template", 0, &mut |pointer, parent, name, shape, depth| {
        let present = |answer: &Value| answer.pointer(pointer).filter(|it| !it.is_null()).cloned();
        let absent = present(at_depth(depth));
        let mut values = Vec::new();
        let mut zero = None;
        match shape {
            Shape::Scalar(it) if present(&zeros) == absent => values.push(it.clone()),
            Shape::Scalar(it) => zero = Some(it.clone()),
            _ if present(at_depth(depth + 1)) == absent => values.push(json!({})),
            _ => {}
        }
        let in_pod =
            pod.get(name).filter(|_| parent == "spec" && pointer.matches('/').count() == 2);
        let default = absent.or_else(|| in_pod.cloned());
        let default = default.filter(|_| matches!(shape, Shape::Scalar(_)));
        values.extend(default.filter(|_| !CONDITIONAL.contains(&name)));
        values.dedup();
        zero = zero.filter(|zero| !values.contains(zero));
        seen.push(Seen {
            pointer: pointer.to_owned(),
            key: format!("{parent}.{name}"),
            values,
            zero,
        });
    });
    Ok(seen)
}

/// An object with all objects down to this depth, and all scalars if `zeros`.
fn skeleton(schema: &PodSchema, definition: &str, depth: usize, zeros: bool) -> Value {
    let mut object = Map::new();
    for field in schema.fields(definition) {
        let value = match field.shape {
            Shape::Scalar(zero) if zeros => zero,
            Shape::Object(inner) if depth > 0 => skeleton(schema, inner, depth - 1, zeros),
            Shape::Objects(inner) if depth > 0 => {
                json!([skeleton(schema, inner, depth - 1, zeros)])
            }
            Shape::Map if depth > 0 => json!({}),
            _ => continue,
        };
        object.insert(field.name.to_owned(), value);
    }
    Value::Object(object)
}

/// Calls `check` for each field that a template may lack: with its pointer, the field that it is in, its name, its shape
/// and the depth of its object.
fn visit(
    schema: &PodSchema,
    definition: &str,
    at: &str,
    parent: &str,
    depth: usize,
    check: &mut impl FnMut(&str, &str, &str, &Shape, usize),
) {
    for field in schema.fields(definition) {
        let pointer = format!("{at}/{}", field.name);
        let is_single = matches!(field.shape, Shape::Scalar(_) | Shape::Object(_) | Shape::Map);
        if is_single && !field.required {
            check(&pointer, parent, field.name, &field.shape, depth);
        }
        match field.shape {
            Shape::Object(inner) => visit(schema, inner, &pointer, field.name, depth + 1, check),
            Shape::Objects(inner) => {
                visit(schema, inner, &format!("{pointer}/0"), field.name, depth + 1, check);
            }
            _ => {}
        }
    }
}

/// A template with what a pointer leads through, and with this value at its end.
fn template_with(pointer: &str, value: Option<&Value>) -> Value {
    let mut names: Vec<&str> = pointer.split('/').skip(1).collect();
    let last = names.pop().unwrap_or_default();
    let end = value.map_or_else(|| json!({}), |value| json!({last: value}));
    names.into_iter().rev().fold(end, |inner, name| match name {
        "0" => json!([inner]),
        name => json!({name: inner}),
    })
}

/// Writes what was seen into the table. What only other versions of Kubernetes have stays.
fn write_table(seen: &[Seen]) -> Result<()> {
    let path = repository().join(TABLE);
    let old = std::fs::read_to_string(&path)?;
    let (comments, lines): (Vec<&str>, Vec<&str>) = old.lines().partition(|it| it.starts_with('#'));
    let lines = lines.iter().map(|line| line.split_once(' ').context(line.to_string()));
    let lines = lines.map(|line| line.map(|(key, values)| (key.to_owned(), values.to_owned())));
    let mut table: BTreeMap<String, String> = lines.collect::<Result<_>>()?;
    let mut by_key: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for Seen { key, values, .. } in seen {
        // What is not the same everywhere is left out.
        let common = by_key.entry(key).or_insert_with(|| values.clone());
        common.retain(|value| values.contains(value));
    }
    for (key, values) in by_key {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        table.remove(key);
        if !values.is_empty() {
            table.insert(key.to_owned(), values.join(" "));
        }
    }
    let comments = comments.iter().map(|line| format!("{line}\n"));
    let lines = table.iter().map(|(key, values)| format!("{key} {values}\n"));
    std::fs::write(&path, comments.chain(lines).collect::<String>())?;
    Ok(())
}

#[e2e::test]
async fn the_planner_knows_the_defaults_that_depend_on_other_fields(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let webhook = Defaulted::install(case).await?;
    let digest = format!("@sha256:{}", "0".repeat(64));
    let mut images: Vec<String> = [
        "game",
        "game:latest",
        "game:v1",
        "host:5000/game",
        "host:5000/game:v1",
        "Host.io/game",
        "host.io/a/b/game",
        "localhost/game",
        "Game",
        "studio/Game",
        "game:",
        "",
        "a//b",
        "-a",
        "a--b",
        "a__b/c",
        "a.b/c:1",
        "game:latest:1",
    ]
    .map(str::to_owned)
    .into();
    images.extend([
        format!("game{digest}"),
        format!("game:latest{digest}"),
        format!("game:v1{digest}"),
    ]);
    let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
    let answer = webhook.template(&json!({"spec": {"containers": containers}})).await?;
    for (index, image) in images.iter().enumerate() {
        let set = &answer["spec"]["containers"][index]["imagePullPolicy"];
        ensure!(set == pull_policy(image), "{image}: {set}, not {}", pull_policy(image));
    }
    let port = |host_port: Value| json!([{"containerPort": 80, "hostPort": host_port}]);
    let host_ports = |host_network: bool, ports: Value| json!({"hostNetwork": host_network, "containers": [{"ports": ports}]});
    let resources = |resources: Value| json!({"containers": [{"resources": resources}]});
    let limits = json!({"cpu": 2, "memory": "1Gi"});
    let of_pod = |requests: Value, container: Value| {
        json!({
            "resources": {"limits": limits, "requests": requests},
            "containers": [{"resources": container}],
        })
    };
    let mut pairs = vec![
        (host_ports(true, port(json!(80))), host_ports(true, port(Value::Null))),
        (host_ports(true, port(json!(81))), host_ports(true, port(Value::Null))),
        (host_ports(false, port(json!(80))), host_ports(false, port(Value::Null))),
        (
            resources(json!({"limits": limits, "requests": {"cpu": "2000m", "memory": "1024Mi"}})),
            resources(json!({"limits": limits})),
        ),
        (
            resources(json!({"limits": limits, "requests": {"cpu": "1"}})),
            resources(json!({"limits": limits})),
        ),
    ];
    // Pods have resources of their own by default from 1.34 on.
    if case.plane().minor >= 34 {
        let container = json!({"requests": {"cpu": 1}});
        pairs.extend([
            (of_pod(json!({"cpu": 2}), json!({})), of_pod(Value::Null, json!({}))),
            (of_pod(json!({"cpu": 2}), container.clone()), of_pod(Value::Null, container.clone())),
            (of_pod(json!({"memory": "1Gi"}), container.clone()), of_pod(Value::Null, container)),
        ]);
    }
    for (one, other) in pairs {
        let mut answers = Vec::new();
        for spec in [&one, &other] {
            let mut spec = spec.clone();
            // The volume of the token has a random name.
            spec["automountServiceAccountToken"] = json!(false);
            answers.push(webhook.pod(&spec).await?);
        }
        let is_same = canonical(&json!({"spec": one})) == canonical(&json!({"spec": other}));
        ensure!(is_same == (answers[0] == answers[1]), "{one}\n{other}\n{answers:#?}");
    }
    // Of an account, the API server would look up whether it exists.
    let template = |field: &str, value: Value| json!({"spec": {field: value}});
    for (one, other) in [
        (template("serviceAccount", json!("game")), template("serviceAccountName", json!("game"))),
        (
            template("volumes", json!([{"name": "data"}])),
            template("volumes", json!([{"name": "data", "emptyDir": {}}])),
        ),
    ] {
        let (first, second) = (webhook.template(&one).await?, webhook.template(&other).await?);
        ensure!(
            first == second && canonical(&one) == canonical(&other),
            "{one}\n{other}\n{first:#}"
        );
    }
    webhook.remove().await
}

/// A template as it is written by hand, and with defaults.
fn short_and_long() -> [Value; 2] {
    let short = json!({
        "containers": [{
            "name": "game", "image": "game:v1",
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "1"}},
            "volumeMounts": [{"name": "maps", "mountPath": "/maps"}],
        }],
        "volumes": [{"name": "maps", "configMap": {"name": "maps", "optional": true}}],
    });
    let mut long = short.clone();
    let container = &mut long["containers"][0];
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
    container["ports"][0]["protocol"] = json!("TCP");
    container["readinessProbe"] = json!({
        "httpGet": {"port": 80, "scheme": "HTTP", "path": "/"},
        "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
    });
    container["resources"]["requests"] = json!({"cpu": "1000m"});
    container["volumeMounts"][0]["readOnly"] = json!(false);
    long["volumes"][0]["configMap"]["defaultMode"] = json!(420);
    long["enableServiceLinks"] = json!(true);
    long["hostNetwork"] = json!(false);
    long["nodeSelector"] = json!({});
    [short, long]
}

#[e2e::test]
async fn a_written_default_changes_no_pod(case: &mut Case) -> Result<()> {
    check_that_defaults_change_no_pod(case, Game::in_place(2)).await
}

#[e2e::test]
async fn a_written_default_changes_no_pod_of_a_set(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    check_that_defaults_change_no_pod(case, Game::parallel(2).updated_by("InplaceUpdate")).await
}

async fn check_that_defaults_change_no_pod(case: &mut Case, game: Game) -> Result<()> {
    let [short, long] = short_and_long().map(|mut spec| {
        spec["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
        spec
    });
    let with = |spec: &Value, strategy: &str| {
        game.clone().set("/spec/template/spec", spec.clone()).updated_by(strategy)
    };
    case.apply(with(&short, "InplaceUpdate")).await?;
    let before = case.until_settled(2).await?;
    for (spec, strategy) in [
        (&long, "InplaceUpdate"),
        (&short, "InplaceUpdate"),
        (&long, "RollingUpdate"),
        (&short, "RollingUpdate"),
    ] {
        let generation = case.view().await?.number("/metadata/generation");
        case.apply(with(spec, strategy)).await?;
        let view = case
            .until("the change is observed", |view| {
                view.number("/metadata/generation") > generation && view.is_observed()
            })
            .await?;
        ensure_unchanged(case, &before, &view).await.context(strategy.to_owned())?;
    }
    Ok(())
}

async fn ensure_unchanged(case: &Case, before: &View, view: &View) -> Result<()> {
    let revision = "/status/updateRevision";
    view.ensure(view.text(revision) == before.text(revision))?;
    view.ensure(uids(view) == uids(before))?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 0))?;
    let revisions = case.list("controllerrevisions").await?.len();
    ensure!(revisions == 1, "{revisions} revisions");
    Ok(())
}

fn uids(view: &View) -> Vec<&str> {
    view.pods.iter().map(|pod| pod.uid()).collect()
}

#[e2e::test]
async fn an_orphaned_stateful_set_is_taken_over_with_its_pods(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let [mut short, _] = short_and_long();
    short["serviceAccountName"] = json!("default");
    short["tolerations"] = Value::Null;
    let template = json!({"metadata": {"labels": {"app": SET}}, "spec": short});
    let native = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": SET},
        "spec": {
            "replicas": 2, "serviceName": GAME, "selector": {"matchLabels": {"app": SET}},
            "template": template,
        },
    });
    case.apply(&native).await?;
    let native_set = format!("statefulset/{SET}");
    case.kubectl(&["rollout", "status", &native_set, "--timeout=300s"]).await?;
    let pods = case.list("pods").await?;
    case.kubectl(&["delete", &native_set, "--cascade=orphan"]).await?;
    let game = Game::ordered(2).set("/spec/serviceName", GAME).set("/spec/template", template);
    case.apply(game).await?;
    let view = case.until_settled(2).await?;
    let mut before: Vec<&str> =
        pods.iter().filter_map(|it| it["metadata"]["uid"].as_str()).collect();
    let mut after = uids(&view);
    before.sort_unstable();
    after.sort_unstable();
    view.ensure(before == after)?;
    let revisions = case.list("controllerrevisions").await?.len();
    ensure!(revisions == 1, "{revisions} revisions");
    Ok(())
}
