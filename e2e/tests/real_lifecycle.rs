//! Lifecycle hooks on a node with a real kubelet: scripts really run there, as root, on the node's own file system.
//! Where a machine cannot run one, the test is skipped with a line that says why.

use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::node::{self, Node};
use e2e::wait::eventually;
use judge::object::text;
use serde_json::{Value, json};

e2e::tests![scripts_run_on_a_real_node];

const SYSTEM: &str = "gamekeeper-system";
const HOOKS: &str = "gamekeeper-hooks";
const LIMIT: Duration = Duration::from_secs(120);
/// What the scripts of the examples print of the Cluster.
const PRINTED: &str = "the cluster labels and annotations key=value pair:location=xa node.alpha.kubernetes.io/test=hello";
/// Waits until the test releases it.
const WAIT: &str = r#"#!/bin/bash
echo "$1" >>/tmp/started
until [ -e "/tmp/release-$1" ]; do sleep 0.1; done
"#;
/// Fails the first time.
const MENDED: &str = r#"#!/bin/bash
[ ! -e /tmp/mended ] || exit 0
touch /tmp/mended
echo "disk full" >&2
exit 3
"#;

fn main() -> Result<ExitCode> {
    let missing = tokio::runtime::Runtime::new()?.block_on(node::missing())?;
    if let Some(missing) = missing {
        println!("the test of scripts on a real kubelet is skipped: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    e2e::trial::main(tests())
}

/// A control plane with the chart's operator, and the real node.
struct Stage {
    plane: &'static ControlPlane,
    operator: Operator,
    node: &'static Node,
}

impl Stage {
    async fn start(case: &Case) -> Result<Self> {
        // The node is stopped after the test has ended, and needs the control plane until then.
        let plane: &'static _ = Box::leak(Box::new(ControlPlane::empty("real").await?));
        let install = [
            "install",
            "gamekeeper",
            CHART,
            "--namespace",
            SYSTEM,
            "--create-namespace",
            "--set=lifecycleHooks.enabled=true",
            // Its Service would not reach the operator, which runs outside of the cluster.
            "--set=admission.enabled=false",
            "--set=image.repository=registry.test/gamekeeper",
        ];
        plane.helm(&install).await?;
        let wait = ["wait", "--for=condition=Established", "crd", "--all"];
        plane.kubectl(&wait, "").await?;
        let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", case.folder()).await?;
        // A new one does not wait for the lease of a killed one.
        operator.disable_leader_election();
        operator.start().await?;
        let node = node::shared(plane, env!("CARGO_BIN_EXE_game-server")).await?;
        let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/gamekeeper");
        let deployment = plane.get(&path).await?;
        let image = "/spec/template/spec/containers/0/image";
        let image = text(&deployment, image).strip_prefix("registry.test/");
        let tag = image.context("the chart's image is in the registry")?;
        node.publish_program(tag, operator.binary()).await?;
        Ok(Stage {
            plane,
            operator,
            node,
        })
    }

    async fn config_map(&self, name: &str, scripts: &[(&str, &str)]) -> Result<()> {
        let data: Value = scripts.iter().map(|(key, text)| (*key, *text)).collect();
        let metadata = json!({"name": name, "namespace": HOOKS});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        self.plane.apply(&[object]).await
    }

    /// Creates a Cluster whose only node, and first master, is the real one.
    async fn create(&self, mut cluster: Value) -> Result<()> {
        cluster["spec"]["machines"] = json!([{"ip": "10.213.77.1"}]);
        cluster["spec"]["features"]["nodeSelector"] = json!({"gamekeeper/kubelet": "real"});
        self.plane.apply(&[cluster]).await
    }

    async fn until_condition(&self, cluster: &str, type_: &str, words: &str) -> Result<()> {
        let path = format!("/apis/tkex.tencent.com/v1alpha1/clusters/{cluster}");
        eventually(&format!("{type_} has {words:?}"), LIMIT, async || {
            let cluster = self.plane.get(&path).await?;
            let conditions = cluster["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let found = conditions.find(|it| it["type"] == type_);
            let found = found.with_context(|| format!("no {type_}: {:#}", cluster["status"]))?;
            let [status, reason, message] =
                ["/status", "/reason", "/message"].map(|field| text(found, field));
            let line = format!("{status} {reason}: {message}");
            ensure!(line.contains(words), "{line}");
            Ok(())
        })
        .await
    }

    /// The output of the script whose Job's name begins like this.
    async fn log(&self, prefix: &str) -> Result<String> {
        let path = format!("/apis/batch/v1/namespaces/{HOOKS}/jobs");
        let jobs = self.plane.get(&path).await?;
        let jobs = jobs["items"].as_array().into_iter().flatten();
        let mut names = jobs.map(|job| text(job, "/metadata/name"));
        let name = names.find(|name| name.starts_with(prefix));
        let name = format!("job/{}", name.with_context(|| format!("no Job {prefix}"))?);
        self.plane.kubectl(&["logs", "-n", HOOKS, &name], "").await
    }

    /// Waits until a script has started, as often as it should have.
    async fn until_started(&self, expected: &[&str]) -> Result<()> {
        eventually("the script has started", LIMIT, async || {
            let started = std::fs::read_to_string(self.node.file("tmp/started")?)?;
            let started: Vec<&str> = started.lines().collect();
            ensure!(started == expected, "{started:?}");
            Ok(())
        })
        .await
    }
}

async fn scripts_run_on_a_real_node(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start(case).await?;
    examples(&stage).await?;
    failures(&mut stage).await
}

/// The scripts of the documentation's example print what they should.
async fn examples(stage: &Stage) -> Result<()> {
    let print = |what: &str| {
        format!(
            "#!/bin/bash\necho \"the cluster labels and annotations key=value pair:$@\"\necho \"{what}\"\n"
        )
    };
    let pre = [
        ("pre-install", "#!/bin/bash\necho \"pre node install\"\n"),
        ("cluster-pre-install", &print("pre cluster install")),
    ];
    let post = [
        ("post-install", "#!/bin/bash\necho \"post node install\"\n"),
        ("cluster-post-install", &print("post cluster install")),
    ];
    stage.config_map("hooks-pre", &pre).await?;
    stage.config_map("hooks-post", &post).await?;
    let example = repository().join("examples/lifecycle/directories/cluster.yaml");
    let example: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(example)?)?;
    stage.create(example).await?;
    stage
        .until_condition("xa", "Ready", "True Installed")
        .await?;
    for (job, expected) in [
        (
            "pre-install-hook-xa-real-0-",
            "pre node install\n".to_owned(),
        ),
        (
            "post-install-hook-xa-real-0-",
            "post node install\n".to_owned(),
        ),
        (
            "pre-cluster-install-hook-xa-real-0-",
            format!("{PRINTED}\npre cluster install\n"),
        ),
        (
            "post-cluster-install-hook-xa-real-0-",
            format!("{PRINTED}\npost cluster install\n"),
        ),
    ] {
        let printed = stage.log(job).await?;
        ensure!(printed == expected, "{job} printed {printed:?}");
    }
    let copied = stage.node.file("tmp/hooks/pre/pre-install")?;
    let mode = std::fs::metadata(copied)?.permissions().mode();
    ensure!(mode & 0o777 == 0o755, "mode {mode:o}");
    let delete = ["delete", "cluster", "xa", "--timeout=60s"];
    stage.plane.kubectl(&delete, "").await?;
    Ok(())
}

/// A script that fails is retried. One that is interrupted by the end of the kubelet or of the operator runs once.
async fn failures(stage: &mut Stage) -> Result<()> {
    stage
        .config_map("hooks", &[("wait", WAIT), ("mended-script", MENDED)])
        .await?;
    let file = |name: &str| json!({"src": format!("hooks/{name}"), "dst": format!("/tmp/{name}")});
    stage
        .create(json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "one"},
            "spec": {
                "version": "1.36.3",
                "features": {
                    "files": [file("wait"), file("mended-script")],
                    "hooks": {
                        "PreClusterInstall": "/tmp/mended-script",
                        "PreInstall": "/tmp/wait kubelet",
                        "PostInstall": "/tmp/wait operator",
                    },
                },
            },
        }))
        .await?;
    let failed = "False FailedInit: exec \"/tmp/mended-script\" on node real-0 failed: exit 3: stderr disk full; attempt 1";
    stage
        .until_condition("one", "EnsurePreClusterInstallHook", failed)
        .await?;
    stage
        .until_condition("one", "EnsurePreClusterInstallHook", "True Passed")
        .await?;

    stage.until_started(&["kubelet"]).await?;
    stage.node.kill_kubelet().await?;
    std::fs::write(stage.node.file("tmp/release-kubelet")?, "")?;
    stage
        .until_condition("one", "EnsurePreInstallHook", "True Passed")
        .await?;

    let started = ["kubelet", "operator"];
    stage.until_started(&started).await?;
    stage.operator.kill().await?;
    std::fs::write(stage.node.file("tmp/release-operator")?, "")?;
    stage.operator.start().await?;
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;
    stage.until_started(&started).await
}
