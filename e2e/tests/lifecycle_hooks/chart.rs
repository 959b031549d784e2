//! What the chart installs: no lifecycle hooks by default, and bootstrap scripts as Helm hooks.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::lifecycle::{HOOKS, SYSTEM};
use e2e::cluster::operator::Operator;
use e2e::process::command::run;
use e2e::wait::LIMIT;
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::has_read_clusters;

#[e2e::test]
async fn a_disabled_feature_adds_nothing_to_the_chart(case: &mut Case) -> Result<()> {
    let objects = e2e::cluster::chart::render(&case.plane().helm, &[]).await?;
    let rendered = serde_json::to_string(&objects)?;
    for word in ["clusters", "gamekeeper-hooks", "lifecycle-hooks", "bootstrap"] {
        ensure!(!rendered.contains(word), "the chart renders {word}");
    }
    let rules = objects.iter().filter_map(|it| it["rules"].as_array()).flatten();
    for rule in rules {
        let resources = rule["resources"].as_array();
        let covers_nodes = resources.is_some_and(|it| it.iter().any(|it| it == "nodes"));
        ensure!(!covers_nodes || rule["verbs"] == json!(["list", "watch"]), "{rule}");
    }
    let metrics = case.operator.get("/metrics").await?.1;
    ensure!(
        metrics.contains("kind=\"Node\"") && !metrics.contains("kind=\"Cluster\""),
        "{metrics}"
    );
    let refused = e2e::cluster::chart::render(
        &case.plane().helm,
        &["--set=lifecycleHooks.enabled=true", "--set=watchNamespace=games"],
    );
    let error = format!("{:#}", refused.await.err().context("Helm did not refuse the values")?);
    ensure!(error.contains("lifecycleHooks.enabled"), "{error}");
    Ok(())
}

#[e2e::test]
async fn bootstrap_scripts_are_helm_hooks(case: &mut Case) -> Result<()> {
    let helm = &case.plane().helm;
    let config_map = "--set=bootstrapHooks.configMap=bootstrap";
    let refused = e2e::cluster::chart::render(helm, &[config_map]).await;
    let error = format!("{:#}", refused.err().context("Helm did not refuse the values")?);
    ensure!(error.contains("bootstrapHooks.image: set an image"), "{error}");
    let values = [config_map, "--set=bootstrapHooks.image=busybox:1.37"];
    let is_bootstrap = |it: &&Value| {
        it["kind"] == "Job" && text(it, "/metadata/name").starts_with("gamekeeper-bootstrap-")
    };
    // kubectl apply and Argo CD would run the scripts each time.
    let rendered = e2e::cluster::chart::render(helm, &values).await?;
    let left = rendered.iter().find(|it| it.to_string().contains("bootstrap"));
    ensure!(left.is_none(), "{left:#?}");
    let plane = case.plane();
    let objects = plane.render_installed("gamekeeper", SYSTEM, &values).await?;
    let jobs: Vec<&Value> = objects.iter().filter(is_bootstrap).collect();
    let found: Vec<[&str; 4]> = jobs
        .iter()
        .map(|job| {
            [
                without_hash(text(job, "/metadata/name")),
                text(job, "/metadata/annotations/helm.sh~1hook"),
                text(job, "/metadata/annotations/helm.sh~1hook-weight"),
                text(job, "/spec/template/spec/initContainers/0/args/1"),
            ]
        })
        .collect();
    let expected = [
        ["gamekeeper-bootstrap-pre-install", "pre-install", "0", ""],
        ["gamekeeper-bootstrap-post-cluster-ready", "post-install", "1", "cluster"],
        ["gamekeeper-bootstrap-post-install", "post-install", "2", "leader"],
    ];
    ensure!(found == expected, "{found:#?}");
    ensure_scripts_are_retried(jobs[0], case.folder()).await?;

    // A cluster with an operator has everything that the Jobs wait for.
    for goal in ["cluster", "leader"] {
        let mut wait = Command::new(case.operator.binary());
        let kubeconfig = case.folder().join("gamekeeper.kubeconfig");
        wait.args(["wait-for", goal]).env("KUBECONFIG", kubeconfig);
        timeout(LIMIT, run(&mut wait, "")).await??;
    }
    Ok(())
}

/// On a cluster whose nodes all have taints, or with a quota, helm would wait in vain for pods that have neither
/// tolerations nor requests.
#[e2e::test]
async fn bootstrap_scripts_run_wherever_the_operator_does(case: &mut Case) -> Result<()> {
    let values = "bootstrapHooks.configMap=bootstrap,bootstrapHooks.image=busybox:1.37,imagePullSecrets={a,b},\
        nodeSelector.pool=infra,tolerations[0].operator=Exists,extraEnv[0].name=TZ,extraEnv[0].value=UTC";
    let options = ["--set", values];
    let plane = case.plane();
    let objects = plane.render_installed("gamekeeper", SYSTEM, &options).await?;
    let pods = |kind: &str| {
        let objects = objects.iter().filter(|it| it["kind"] == kind);
        let pods = objects.map(|it| &it["spec"]["template"]["spec"]);
        pods.collect::<Vec<_>>()
    };
    let [operator] = pods("Deployment")[..] else {
        anyhow::bail!("the chart has one Deployment");
    };
    let of_operator = &operator["containers"][0];
    let jobs = pods("Job");
    ensure!(jobs.len() == 4, "{jobs:#?}");
    for pod in jobs {
        for field in ["imagePullSecrets", "nodeSelector", "tolerations"] {
            let is_equal = pod[field] == operator[field] && !pod[field].is_null();
            ensure!(is_equal, "{field}: {pod:#}");
        }
        for container in
            ["initContainers", "containers"].iter().filter_map(|it| pod[it].as_array()).flatten()
        {
            let resources = &container["resources"];
            ensure!(*resources == of_operator["resources"], "{container:#}");
            // Scripts have an image of their own, and not the operator's variables.
            let has_variables = container["env"] == of_operator["env"];
            let runs_operator = container["image"] == of_operator["image"];
            ensure!(has_variables == runs_operator, "{container:#}");
        }
    }
    Ok(())
}

/// Runs the command of a Job on this machine: a missing script is skipped, and a failing one is retried.
async fn ensure_scripts_are_retried(job: &Value, folder: &Path) -> Result<()> {
    let folder = folder.display().to_string();
    let words = &job["spec"]["template"]["spec"]["containers"][0]["command"];
    let script = text(words, "/2").replace("/app/hooks", &folder);
    let script = script.replace("sleep 10", "sleep 0");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]);
    let printed = run(&mut shell, "").await?;
    ensure!(printed.contains("there is no script pre-install"), "{printed}");
    let path = format!("{folder}/pre-install");
    // The script fails until the third attempt.
    let failing_twice =
        format!("#!/bin/sh\necho x >> {folder}/attempts\ntest $(wc -l < {folder}/attempts) = 3\n");
    std::fs::write(&path, failing_twice)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    run(&mut shell, "").await?;
    let attempts = std::fs::read_to_string(format!("{folder}/attempts"))?;
    ensure!(attempts.lines().count() == 3, "{attempts}");
    Ok(())
}

#[e2e::test]
async fn an_installation_runs_bootstrap_scripts_and_uses_no_lifecycle_hooks(
    case: &mut Case,
) -> Result<()> {
    let plane = ControlPlane::empty("bootstrap").await?;
    let outcome = check_installation(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn check_installation(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let kubectl = async |line: &str| plane.kubectl_line(line).await;
    kubectl(&format!("create namespace {SYSTEM}")).await?;
    let create_config_map = "create configmap bootstrap --from-literal=pre-install=true";
    kubectl(&format!("{create_config_map} -n {SYSTEM}")).await?;
    let install = [
        "install",
        "gamekeeper",
        CHART,
        "--namespace",
        SYSTEM,
        "--set=bootstrapHooks.configMap=bootstrap",
        "--set=bootstrapHooks.image=busybox:1.37",
        "--timeout=300s",
    ];
    plane.helm(&install).await?;
    let [first, second, third] = ["pre-install", "post-cluster-ready", "post-install"]
        .map(|script| format!("gamekeeper-bootstrap-{script}"));
    let expected = [
        format!("Job {first}"),
        format!("end of {first}"),
        "Deployment".to_owned(),
        format!("Job {second}"),
        format!("end of {second}"),
        format!("Job {third}"),
        format!("end of {third}"),
    ];
    let found = order(plane)?;
    ensure!(found == expected, "{found:#?}");

    let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
    operator.start().await?;
    let game = Game::in_place(2).named("arena").to_string();
    plane.kubectl(&["apply", "-f", "-"], &game).await?;
    kubectl("wait gamedeployment/arena --for=jsonpath={.status.readyReplicas}=2 --timeout=300s")
        .await?;
    // The operator must not write to a node, even if one is cordoned.
    kubectl("cordon node-0").await?;
    kubectl("scale gamedeployment/arena --replicas=0").await?;
    kubectl("wait gamedeployment/arena --for=jsonpath={.status.replicas}=0 --timeout=300s").await?;
    // The audit log shows a watch once it has ended.
    operator.terminate().await?;
    ensure!(!has_read_clusters(plane)?, "the operator reads Clusters");
    let username = operator.username();
    let writes = plane.audit.writes("")?;
    let node_write =
        writes.iter().find(|it| it.user.username == username && it.resource() == "nodes");
    ensure!(node_write.is_none(), "{node_write:#?}");
    let scripts = plane.audit.requests(HOOKS)?;
    ensure!(scripts.is_empty(), "{scripts:#?}");
    let kinds = kubectl("api-resources --api-group=tkex.tencent.com -o=name").await?;
    ensure!(!kinds.contains("clusters."), "{kinds}");
    let namespaces = kubectl("get namespaces -o name").await?;
    ensure!(!namespaces.contains(HOOKS), "{namespaces}");
    Ok(())
}

/// The name of a Job without the hash of its content.
fn without_hash(job: &str) -> &str {
    job.rsplit_once('-').map_or(job, |(name, _)| name)
}

/// The order in which the Jobs and the Deployment were created and the Jobs' scripts ended.
fn order(plane: &ControlPlane) -> Result<Vec<String>> {
    let mut order = Vec::new();
    for event in plane.audit.writes(SYSTEM)?.iter().filter(|it| it.succeeded()) {
        let object = event.response_object.as_ref().unwrap_or(&Value::Null);
        let step = match event.resource() {
            "jobs" if event.verb == "create" => {
                format!("Job {}", without_hash(text(object, "/metadata/name")))
            }
            "pods" if text(object, "/status/phase") == "Succeeded" => {
                let job = without_hash(text(object, "/metadata/labels/job-name"));
                format!("end of {job}")
            }
            "deployments" => "Deployment".to_owned(),
            _ => continue,
        };
        if !order.contains(&step) {
            order.push(step);
        }
    }
    Ok(order)
}
