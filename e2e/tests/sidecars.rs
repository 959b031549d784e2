//! SidecarSets: containers that are injected into pods of workloads and of other controllers.

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use judge::object::{annotation, text};
use serde_json::{Value, json};

/// The label of namespaces in which pods of any controller get sidecars.
const LABEL: &str = "gamekeeper.tkex.tencent.com/sidecars";
/// The prefix of a pod's annotations about SidecarSets.
const MARK: &str = "sidecars.gamekeeper.tkex.tencent.com/";

/// The name of the test's SidecarSet, which is unique in the cluster.
pub(crate) fn name(case: &Case) -> String {
    format!("log-{}", &case.namespace[case.namespace.len().saturating_sub(40)..])
}

/// A SidecarSet for the test's namespace, with these containers.
pub(crate) fn set(case: &Case, containers: Value) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "SidecarSet",
        "metadata": {"name": name(case)},
        "spec": {
            "selector": {"matchLabels": {"app": GAME}},
            "namespace": case.namespace,
            "containers": containers,
            "volumes": [{"name": "logs", "emptyDir": {}}],
        },
    })
}

/// The containers of a set: only `log`.
pub(crate) fn log() -> Value {
    let mount = json!({"name": "logs", "mountPath": "/logs"});
    json!([{"name": "log", "image": "log:1.0", "volumeMounts": [mount]}])
}

/// A pod that the set selects and no workload controls.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": GAME}},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    })
}

pub(crate) async fn read(case: &Case) -> Result<Value> {
    let path = format!("/apis/tkex.tencent.com/v1alpha1/sidecarsets/{}", name(case));
    case.plane().get(&path).await
}

/// Waits until the status shows these numbers of matched, updated, ready and uninjected pods.
pub(crate) async fn until_shown(case: &Case, counts: [i64; 4]) -> Result<Value> {
    case.eventually(&format!("the set shows {counts:?}"), async || {
        let set = read(case).await?;
        let fields = ["matchedPods", "updatedPods", "readyPods", "uninjectedPods"];
        let found = fields.map(|field| set["status"][field].as_i64().unwrap_or(-1));
        let observed = &set["status"]["observedGeneration"];
        let is_observed = *observed == set["metadata"]["generation"];
        ensure!(found == counts && is_observed, "{:#}", set["status"]);
        Ok(set)
    })
    .await
}

/// The names of a pod's containers.
pub(crate) fn containers(pod: &Value) -> Vec<&str> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.map(|it| text(it, "/name")).collect()
}

/// Whether all pods have exactly these containers, in this order.
pub(crate) fn all_have(view: &View, names: &[&str]) -> bool {
    view.pods.iter().all(|pod| containers(&pod.0) == names)
}

/// A set's annotation on a pod, parsed.
pub(crate) fn mark(pod: &Value, set: &str) -> Option<Value> {
    serde_json::from_str(annotation(pod, &format!("{MARK}{set}"))?).ok()
}

/// The status, reason and message of a set's condition.
pub(crate) fn condition(set: &Value, type_: &str) -> (String, String, String) {
    let conditions = set["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|it| it["type"] == type_);
    let field = |field| found.map_or_else(String::new, |it| text(it, field).to_owned());
    (field("/status"), field("/reason"), field("/message"))
}

pub(crate) async fn remove(case: &Case) -> Result<()> {
    case.kubectl(&["delete", "sidecarset", &name(case)]).await?;
    Ok(())
}

/// Sets (`=enabled`) or removes (`-`) the label of the test's namespace.
pub(crate) async fn label(case: &Case, value: &str) -> Result<()> {
    let label = format!("{LABEL}{value}");
    let args = ["label", "--overwrite", "namespace", &case.namespace, &label];
    case.kubectl(&args).await?;
    Ok(())
}

/// Waits until a new pod would get the container.
pub(crate) async fn until_injecting(case: &Case, container: &str) -> Result<()> {
    let dry_run = ["create", "--dry-run=server", "-o=json", "-f", "-"];
    case.eventually("new pods get sidecars", async || {
        let created = case.kubectl_with(&dry_run, &pod("probe").to_string()).await?;
        let created: Value = serde_json::from_str(&created)?;
        ensure!(containers(&created).contains(&container), "{created:#}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_set_gets_its_defaults_injects_into_pods_and_counts_them(case: &mut Case) -> Result<()> {
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    // The API server calls a mutating webhook only some time after it was configured.
    case.eventually("a set without defaults gets them", async || {
        let create = ["create", "--dry-run=server", "-o=json", "-f", "-"];
        let created = case.kubectl_with(&create, &set(case, log()).to_string()).await?;
        let created: Value = serde_json::from_str(&created)?;
        let container = &created["spec"]["containers"][0];
        ensure!(container["podInjectPolicy"] == "BeforeAppContainer", "{container:#}");
        ensure!(container["shareVolumePolicy"]["type"] == "disabled", "{container:#}");
        ensure!(created["spec"]["injectionStrategy"]["paused"] == false, "{created:#}");
        Ok(())
    })
    .await?;
    label(case, "=enabled").await?;
    case.apply(set(case, log())).await?;
    until_shown(case, [0, 0, 0, 0]).await?;

    until_injecting(case, "log").await?;
    case.apply(pod("a")).await?;
    let a = case.get("pods/a").await?;
    ensure!(containers(&a) == ["log", "game"], "{a:#}");
    let volumes = a["spec"]["volumes"].as_array().into_iter().flatten();
    let volumes: Vec<&str> = volumes.map(|it| text(it, "/name")).collect();
    ensure!(volumes.contains(&"logs"), "{a:#}");
    ensure!(annotation(&a, "kubectl.kubernetes.io/default-container") == Some("game"));
    ensure!(annotation(&a, &format!("{MARK}{}", name(case))).is_some(), "{a:#}");
    let shown = until_shown(case, [1, 1, 1, 0]).await?;
    ensure!(condition(&shown, "Ready").0 == "True", "{shown:#}");
    ensure!(condition(&shown, "Injecting").0 == "True", "{shown:#}");
    let table = case.kubectl(&["get", "sidecarset", &name(case)]).await?;
    let lines: Vec<Vec<&str>> = table.lines().map(|it| it.split_whitespace().collect()).collect();
    ensure!(lines[0] == ["NAME", "MATCHED", "UPDATED", "READY", "AGE"], "{table}");
    ensure!(lines[1][1..4] == ["1", "1", "1"], "{table}");

    let mut bad = set(
        case,
        json!([{"name": "log", "image": "log:1.0", "volumeMounts": [{
        "name": "missing", "mountPath": "/a"}]}]),
    );
    bad["metadata"]["name"] = json!(format!("bad-{}", name(case)));
    let create = ["create", "-f", "-"];
    let error = case.refused(&create, &bad.to_string()).await?;
    let message = "spec.containers[0].volumeMounts[0].name: Not found: \"missing\": no volume has this name; add it \
                   to spec.volumes";
    ensure!(error.contains(message), "{error}");

    // A set with a container of the same name is accepted with a warning.
    let mut second = set(case, log());
    second["metadata"]["name"] = json!(format!("z-{}", name(case)));
    let create = ["create", "--dry-run=server", "--warnings-as-errors", "-f", "-"];
    let warned = case.refused(&create, &second.to_string()).await?;
    let message = "may select the same pods and has a container of this name too";
    ensure!(warned.contains(message), "{warned}");

    // A new image applies to new pods, and to the old one, which no workload controls.
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "log:1.1"}]);
    case.patch(&format!("sidecarset/{}", name(case)), image).await?;
    until_shown(case, [1, 1, 1, 0]).await?;
    let a = case.get("pods/a").await?;
    ensure!(a["spec"]["containers"][0]["image"] == "log:1.1", "{a:#}");
    case.eventually("the webhook has the new image", async || {
        let create = ["create", "--dry-run=server", "-o=json", "-f", "-"];
        let created = case.kubectl_with(&create, &pod("probe").to_string()).await?;
        let created: Value = serde_json::from_str(&created)?;
        ensure!(created["spec"]["containers"][0]["image"] == "log:1.1", "{created:#}");
        Ok(())
    })
    .await?;
    case.apply(pod("b")).await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    case.kubectl(&["delete", "pod", "a", "b", "--grace-period=1"]).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    remove(case).await?;
    installed.remove(case).await
}

#[e2e::test]
async fn game_pods_get_sidecars_from_the_operator_itself(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    case.apply(set(case, log())).await?;
    // A new set does not affect running pods.
    let shown = until_shown(case, [0, 0, 0, 2]).await?;
    ensure!(condition(&shown, "Ready").1 == "NotInjected", "{shown:#}");
    case.scale(4).await?;
    let view = case.until_settled(4).await?;
    let injected: Vec<_> = view.pods.iter().filter(|pod| containers(&pod.0).len() == 2).collect();
    view.ensure(injected.len() == 2)?;
    view.ensure(injected.iter().all(|pod| containers(&pod.0) == ["log", "game"]))?;
    until_shown(case, [2, 2, 2, 2]).await?;

    // An in-place update changes the game, but not its sidecar.
    case.set_image("game:v2").await?;
    let after = case.until_settled(4).await?;
    for pod in &injected {
        let updated =
            after.pods.iter().find(|it| it.0["metadata"]["uid"] == pod.0["metadata"]["uid"]);
        let updated = updated.context("the pod was replaced")?;
        ensure!(updated.0["spec"]["containers"][0]["image"] == "log:1.0", "{:#}", updated.0);
        ensure!(updated.0["spec"]["containers"][1]["image"] == "game:v2", "{:#}", updated.0);
    }
    // A paused set is not injected into new pods.
    let paused =
        json!([{"op": "add", "path": "/spec/injectionStrategy", "value": {"paused": true}}]);
    case.patch(&format!("sidecarset/{}", name(case)), paused).await?;
    let shown = until_shown(case, [2, 2, 2, 2]).await?;
    ensure!(condition(&shown, "Injecting").1 == "Paused", "{shown:#}");
    case.scale(5).await?;
    case.until_settled(5).await?;
    until_shown(case, [2, 2, 2, 3]).await?;
    remove(case).await
}

#[e2e::test]
async fn a_set_that_clashes_is_left_out_and_reported(case: &mut Case) -> Result<()> {
    case.apply(set(case, json!([{"name": "game", "image": "log:1.0"}]))).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(1)).await?;
    let view = case.until_settled(1).await?;
    view.ensure(containers(&view.pods[0].0) == ["game"])?;
    view.ensure(view.pods[0].0["spec"]["containers"][0]["image"] == "game:v1")?;
    let shown = until_shown(case, [0, 0, 0, 1]).await?;
    let (status, reason, message) = condition(&shown, "Injecting");
    ensure!((&*status, &*reason) == ("False", "Clash"), "{shown:#}");
    ensure!(message.contains("the pod has another container \"game\""), "{message}");
    remove(case).await
}

#[e2e::test]
async fn a_container_name_that_a_selected_workload_has_causes_a_warning(
    case: &mut Case,
) -> Result<()> {
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let mut set = set(case, json!([{"name": "game", "image": "log:1.0"}]));
    let create = ["create", "--dry-run=server", "--warnings-as-errors", "-f", "-"];
    let namespace = &case.namespace;
    let message = format!("GameDeployment {namespace}/{GAME} has a container \"game\"");
    let warned = case.refused(&create, &set.to_string()).await?;
    ensure!(warned.contains(&message), "{warned}");
    set["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    // Other tests' sets may cause other warnings.
    let created = case.kubectl_with(&create, &set.to_string()).await;
    let printed = created.unwrap_or_else(|error| format!("{error:#}"));
    ensure!(!printed.contains(&message), "{printed}");
    installed.remove(case).await
}

/// A manifest like those in OpenKruise's documentation.
const KRUISE: &str = "
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata:
  name: NAME
spec:
  selector:
    matchLabels:
      app: test-gamedeployment
  namespace: NAMESPACE
  updateStrategy:
    type: RollingUpdate
    maxUnavailable: 1
  containers:
  - name: sidecar1
    image: centos:6.7
    command: [\"sleep\", \"999d\"]
    podInjectPolicy: AfterAppContainer
    shareVolumePolicy:
      type: enabled
    upgradeStrategy:
      upgradeType: ColdUpgrade
    transferEnv:
    - sourceContainerName: game
      envName: ROOM
    volumeMounts:
    - name: log-volume
      mountPath: /var/log
  initContainers:
  - name: setup
    image: centos:6.7
  volumes:
  - name: log-volume
    emptyDir: {}
";

#[e2e::test]
async fn pods_of_a_deployment_get_the_sidecars_of_an_openkruise_manifest(
    case: &mut Case,
) -> Result<()> {
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    label(case, "=enabled").await?;
    let ported = KRUISE.replace("apps.kruise.io", "tkex.tencent.com");
    let ported = ported.replace("NAMESPACE", &case.namespace).replace("NAME", &name(case));
    case.apply(ported).await?;
    until_injecting(case, "sidecar1").await?;
    let mut template = pod("none");
    template["metadata"] = json!({"labels": {"app": GAME}});
    template["spec"]["containers"][0]["env"] = json!([{"name": "ROOM", "value": "7"}]);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": GAME}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    });
    case.apply(deployment).await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    for pod in case.list("pods").await? {
        ensure!(containers(&pod) == ["game", "sidecar1"], "{pod:#}");
        ensure!(pod["spec"]["initContainers"][0]["name"] == "setup", "{pod:#}");
        let env = &pod["spec"]["containers"][1]["env"];
        let expected = json!([
            {"name": "IS_INJECTED", "value": "true"}, {"name": "ROOM", "value": "7"},
        ]);
        ensure!(*env == expected, "{env:#}");
    }
    case.kubectl(&["delete", "deployment", "web"]).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    remove(case).await?;
    installed.remove(case).await
}
