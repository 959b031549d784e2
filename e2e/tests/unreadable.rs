//! Objects that this version of the operator cannot decode: they are reported in events, conditions and metrics,
//! and are not changed otherwise. Workloads for which it cannot plan have events. Neither affects other workloads.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::control_plane::ControlPlane;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use e2e::workload::{GAME, SET};
use serde_json::{Value, json};

use crate::sidecars;

/// A value that no version of the operator knows.
const UNKNOWN: &str = "Someday";

/// An object, and one of its enum fields.
struct Field {
    plural: &'static str,
    name: &'static str,
    path: &'static [&'static str],
    valid: &'static str,
}

const FIELDS: [Field; 4] = [
    Field {
        plural: "gamedeployments",
        name: GAME,
        path: &["spec", "updateStrategy", "type"],
        valid: "InplaceUpdate",
    },
    Field {
        plural: "gamestatefulsets",
        name: SET,
        path: &["spec", "updateStrategy", "type"],
        valid: "RollingUpdate",
    },
    Field { plural: "hookruns", name: "check", path: &["spec", "policy"], valid: "Parallel" },
    Field {
        plural: "hooktemplates",
        name: "drained",
        path: &["spec", "policy"],
        valid: "Parallel",
    },
];

impl Field {
    /// Allows any value, as the CRD of another version would.
    async fn allow(&self, plane: &ControlPlane) -> Result<()> {
        let schema = "/spec/versions/0/schema/openAPIV3Schema";
        let properties = self.path.join("/properties/");
        let path = format!("{schema}/properties/{properties}/enum");
        allow_any_value(plane, self.plural, &path).await
    }

    /// Stores a value in the field.
    async fn store(&self, case: &Case, value: &str) -> Result<()> {
        let path = format!("/{}", self.path.join("/"));
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        case.eventually("the value is accepted", async || {
            case.patch(&format!("{}/{}", self.plural, self.name), patch.clone()).await
        })
        .await?;
        Ok(())
    }

    /// The object's kind, as in events and metrics.
    async fn kind(&self, case: &Case) -> Result<String> {
        let object = self.get(case).await?;
        Ok(object["kind"].as_str().unwrap_or_default().to_owned())
    }

    async fn get(&self, case: &Case) -> Result<Value> {
        case.get(&format!("{}/{}", self.plural, self.name)).await
    }

    /// Waits until kubectl describe shows the event.
    async fn until_in_events(&self, case: &Case) -> Result<()> {
        case.eventually("kubectl describe shows the event", async || {
            let shown = case.kubectl(&["describe", self.plural, self.name]).await?;
            let is_shown = shown.contains("Unreadable") && shown.contains("unknown variant");
            ensure!(is_shown && shown.contains(UNKNOWN), "{shown}");
            Ok(())
        })
        .await
    }

    /// Waits until the metric of the object's kind has this value.
    async fn until_counted(&self, case: &Case, count: u32) -> Result<()> {
        let kind = self.kind(case).await?;
        let line = format!("gamekeeper_unreadable_objects{{kind=\"{kind}\"}} {count}.0");
        case.eventually(&line, async || {
            let (_, page) = case.operator.get("/metrics").await?;
            ensure!(page.lines().any(|it| it == line), "{page}");
            Ok(())
        })
        .await
    }

    /// Waits until the condition Ready reports that the object is unreadable. All other fields must be unchanged.
    async fn until_in_conditions(&self, case: &Case, before: &Value) -> Result<()> {
        let after = case
            .eventually("condition Ready reports that the object is unreadable", async || {
                let object = self.get(case).await?;
                let ready = ready(&object);
                let is_shown = ready["status"] == "False" && ready["reason"] == "Unreadable";
                let message = ready["message"].as_str().unwrap_or_default();
                ensure!(is_shown && message.contains(UNKNOWN), "{object:#}");
                Ok(object)
            })
            .await?;
        ensure!(
            without_changed_fields(&after, self) == without_changed_fields(before, self),
            "{after:#}"
        );
        Ok(())
    }
}

/// Removes the list of a field's values from a CRD.
async fn allow_any_value(plane: &ControlPlane, plural: &str, path: &str) -> Result<()> {
    let patch = format!("-p={}", json!([{"op": "remove", "path": path}]));
    let crd = format!("{plural}.tkex.tencent.com");
    plane.kubectl(&["patch", "crd", &crd, "--type=json", &patch], "").await?;
    Ok(())
}

/// The condition Ready of an object.
fn ready(object: &Value) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|it| it["type"] == "Ready");
    ready.cloned().unwrap_or_default()
}

/// An object without the fields that the test or the operator changes.
fn without_changed_fields(object: &Value, field: &Field) -> Value {
    let mut object = object.clone();
    for key in ["managedFields", "resourceVersion", "generation"] {
        object["metadata"][key] = Value::Null;
    }
    object[field.path[0]] = {
        let mut spec = object[field.path[0]].clone();
        let inner = field.path[1..].join("/");
        if let Some(value) = spec.pointer_mut(&format!("/{inner}")) {
            *value = Value::Null;
        }
        spec
    };
    let mut conditions = object["status"]["conditions"].take();
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|it| !["Ready", "Stalled"].iter().any(|type_| it["type"] == *type_));
    }
    object["status"]["observedGeneration"] = Value::Null;
    object["status"]["conditions"] = match conditions {
        Value::Null => json!([]),
        conditions => conditions,
    };
    object
}

/// Checks that the runbook's command lists one object of each of these kinds.
async fn check_runbook_lists(case: &Case, kinds: &[&str]) -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let (_, columns) = page.split_once("-A -o '").context("no command")?;
    let (columns, _) = columns.split_once("'\n").context("the command does not end")?;
    let plurals = "gamedeployments,gamestatefulsets,hookruns";
    let listed = case.kubectl(&["get", plurals, "-o", columns]).await?;
    let unreadable = listed.lines().filter(|line| line.contains(UNKNOWN));
    let found: Vec<&str> = unreadable.filter_map(|line| line.split(' ').next()).collect();
    ensure!(found == kinds, "{listed}");
    Ok(())
}

#[e2e::test]
async fn objects_of_another_version_are_reported_until_they_are_fixed(
    case: &mut Case,
) -> Result<()> {
    case.operator.terminate().await?;
    // The test has a control plane of its own, because it changes the CRDs.
    let plane: &'static ControlPlane =
        Box::leak(Box::new(ControlPlane::another("versions").await?));
    let outcome = run_on_own_control_plane(plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn run_on_own_control_plane(plane: &'static ControlPlane, folder: &Path) -> Result<()> {
    let mut case = Case::open(plane, "versions", &folder.join("versions")).await?;
    let outcome = async {
        report_until_fixed(&mut case).await?;
        report_invalid_selector(&case).await
    };
    let outcome = outcome.await;
    let verdict = case.close().await;
    outcome.and(verdict)?;
    let mut case = Case::open(plane, "sets", &folder.join("sets")).await?;
    let outcome = create_no_pod_without_unknown_sidecars(&mut case).await;
    let verdict = case.close().await;
    outcome.and(verdict)
}

/// No pod is created without the containers of a SidecarSet that a newer version wrote, and none is given up.
async fn create_no_pod_without_unknown_sidecars(case: &mut Case) -> Result<()> {
    let game = |replicas| {
        Game::in_place(replicas).set("/spec/updateStrategy/type", json!("RollingUpdate"))
    };
    case.apply(game(1)).await?;
    case.until_settled(1).await?;
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/updateStrategy\
        /properties/type/enum";
    allow_any_value(case.plane(), "sidecarsets", path).await?;
    let mut unknown = sidecars::set(case, sidecars::log());
    unknown["spec"]["updateStrategy"] = json!({"type": UNKNOWN});
    case.eventually("the value is accepted", async || case.apply(&unknown).await).await?;
    // An operator for one namespace writes no status of a set that it cannot read.
    case.apply(game(2)).await?;
    let why = format!("SidecarSet {}", sidecars::name(case));
    let is_told = |view: &View, condition: &str| {
        let found = view.condition(condition);
        found.is_some_and(|it| it.reason == "SidecarsUnreadable" && it.message.contains(&why))
    };
    let told = |view: &View| is_told(view, "FailedScale");
    let view = case.until("the set is named", told).await?;
    view.ensure(view.pods.len() == 1)?;
    case.apply(game(2).image("game:v2")).await?;
    let told = |view: &View| is_told(view, "FailedUpdate");
    let view = case.until("the rollout waits", told).await?;
    view.ensure(view.pods.len() == 1 && view.ready_with("game:v1") == 1)?;
    let status = case.game(&["status", GAME]).await?;
    ensure!(status.stdout.contains(&why), "{status:?}");

    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    sidecars::label(case, "=enabled").await?;
    let create = ["create", "--dry-run=server", "-f", "-"];
    let pod = sidecars::pod("other").to_string();
    case.until_refused("other pods are refused, too", &create, &pod, &why).await?;

    let fix = json!({"spec": {"updateStrategy": {"type": "NotUpdate"}}}).to_string();
    case.kubectl(&["patch", "sidecarset", &sidecars::name(case), "--type=merge", "-p", &fix])
        .await?;
    case.until("all pods are created with the container", |view| {
        view.is_settled(2) && sidecars::all_have(view, &["log", "game"])
    })
    .await?;
    sidecars::until_injecting(case, "log").await?;
    sidecars::remove(case).await
}

async fn report_until_fixed(case: &mut Case) -> Result<()> {
    let age = Answer::Json(json!({"age": 45}));
    case.hooks.answer("/drained", age);
    let drained = hook_template("drained", &case.hooks.url("/drained"));
    case.apply(&drained).await?;
    case.apply(Game::in_place(2).pre_delete("drained")).await?;
    case.apply(Game::parallel(2)).await?;
    let mut run = drained;
    run["kind"] = json!("HookRun");
    run["metadata"]["name"] = json!("check");
    run["spec"]["policy"] = json!("Parallel");
    case.apply(&run).await?;
    case.until_settled(2).await?;
    let wait = ["wait", "--for=condition=Ready", "--timeout=300s"];
    case.kubectl(&[&wait[..], &["gamestatefulset", SET]].concat()).await?;
    let wait = ["wait", "--for=jsonpath={.status.phase}=Successful", "--timeout=300s"];
    case.kubectl(&[&wait[..], &["hookrun", "check"]].concat()).await?;
    let pods = case.list("pods").await?;
    let [game, set, check, template] = &FIELDS;
    for field in &FIELDS {
        field.allow(case.plane()).await?;
        field.until_counted(case, 0).await?;
    }

    // A workload whose HookTemplate cannot be decoded reports that, and deletes no pod.
    template.store(case, UNKNOWN).await?;
    template.until_counted(case, 1).await?;
    template.until_in_events(case).await?;
    case.scale(1).await?;
    let view = case.until("the template is reported", |view| view.is_true("FailedScale")).await?;
    let reason = view.condition("FailedScale").map(|it| it.reason.clone());
    view.ensure(reason.as_deref() == Some("HookTemplateUnreadable") && view.pods.len() == 2)?;
    case.scale(2).await?;
    case.until_settled(2).await?;

    let mut before = Vec::new();
    for field in [game, set, check] {
        before.push(field.get(case).await?);
    }
    check.store(case, UNKNOWN).await?;
    set.store(case, UNKNOWN).await?;
    set.until_in_conditions(case, &before[1]).await?;
    // A new leader reports what it finds.
    case.operator.terminate().await?;
    game.store(case, UNKNOWN).await?;
    case.operator.start().await?;
    for (field, before) in [game, set, check].into_iter().zip(&before) {
        field.until_in_conditions(case, before).await?;
        field.until_in_events(case).await?;
        field.until_counted(case, 1).await?;
    }
    check_runbook_lists(case, &["GameDeployment", "GameStatefulSet", "HookRun"]).await?;
    update_another_workload(case).await?;

    for field in &FIELDS {
        field.store(case, field.valid).await?;
        field.until_counted(case, 0).await?;
    }
    for field in [game, set] {
        case.eventually("condition Ready is True again", async || {
            let object = field.get(case).await?;
            ensure!(ready(&object)["status"] == "True", "{object:#}");
            Ok(())
        })
        .await?;
    }
    case.eventually("the run has no condition", async || {
        let run = check.get(case).await?;
        ensure!(run["status"]["conditions"].is_null(), "{run:#}");
        ensure!(run["status"]["phase"] == "Successful", "{run:#}");
        Ok(())
    })
    .await?;
    let uids = |pods: &[Value]| -> Vec<Value> {
        pods.iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    ensure!(uids(&pods) == uids(&case.list("pods").await?), "pods were replaced");
    case.scale(1).await?;
    case.until_settled(1).await?;
    Ok(())
}

/// No plan can be made for a workload whose selector has an operator that is unknown to this version.
async fn report_invalid_selector(case: &Case) -> Result<()> {
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/selector\
        /properties/matchExpressions/items/properties/operator/enum";
    allow_any_value(case.plane(), "gamedeployments", path).await?;
    // The template lacks this label, because the CRD's rules treat an unknown operator like DoesNotExist.
    let selector = json!([{"key": "tier", "operator": UNKNOWN}]);
    let invalid =
        Game::in_place(1).named("invalid").set("/spec/selector/matchExpressions", selector);
    case.eventually("the selector is accepted", async || case.apply(&invalid).await).await?;
    case.eventually("kubectl describe shows the event", async || {
        let shown = case.kubectl(&["describe", "gamedeployment", "invalid"]).await?;
        let is_shown = shown.contains("Unreadable") && shown.contains("spec.selector: ");
        ensure!(is_shown, "{shown}");
        Ok(())
    })
    .await?;
    update_another_workload(case).await?;
    let view = case.view_of("invalid").await?;
    view.ensure(view.pods.is_empty())
}

/// Creates, updates and deletes another workload.
async fn update_another_workload(case: &Case) -> Result<()> {
    let another = Game::in_place(2).named("another");
    case.apply(another.clone()).await?;
    let is_settled = |view: &View| view.is_settled(2);
    case.until_of("another", "all pods exist", is_settled).await?;
    case.apply(another.image("game:v2")).await?;
    case.until_of("another", "all pods are updated", |view| {
        is_settled(view) && view.ready_with("game:v2") == 2
    })
    .await?;
    case.kubectl(&["delete", "gamedeployment", "another"]).await?;
    case.eventually("the pods are deleted", async || {
        let pods = case.get("pods?labelSelector=app=another").await?;
        ensure!(pods["items"] == json!([]), "{pods:#}");
        Ok(())
    })
    .await
}
