//! What the chart renders for guarded pods: the permissions on their budgets, and names that fit together in every
//! release.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use e2e::case::Case;
use e2e::cluster::chart::render;
use judge::object::text;
use serde_json::{Value, json};

use super::of_kind;

/// Combinations of the values that decide whether pods are guarded, and in which namespaces.
const VALUES: [&str; 4] = [
    "admission.guardedPods=true",
    "admission.guardedPods=false",
    "admission.guardedPods=true,watchNamespace=games,sidecars.enabled=false",
    "admission.guardedPods=false,watchNamespace=games,admission.enabled=false,replicas=0",
];

/// All verbs that the chart's roles of one kind grant on a resource.
fn verbs<'a>(objects: &'a [Value], kind: &str, resource: &str) -> BTreeSet<&'a str> {
    let rules = of_kind(objects, kind).into_iter();
    let rules = rules.flat_map(|role| role["rules"].as_array().into_iter().flatten());
    let rules = rules.filter(|rule| {
        let resources = rule["resources"].as_array();
        resources.is_some_and(|it| it.contains(&json!(resource)))
    });
    let verbs = rules.flat_map(|rule| rule["verbs"].as_array().into_iter().flatten());
    verbs.filter_map(Value::as_str).collect()
}

#[e2e::test]
async fn exactly_the_verbs_in_use_are_granted_on_budgets(case: &mut Case) -> Result<()> {
    for values in VALUES {
        let objects = render(&case.plane().helm, &["--set", values]).await?;
        // `reconcile::apply::act` and `unguard::guards` list budgets and delete them; a dry run of a deletion checks the
        // guard.
        let mut expected = BTreeSet::from(["list", "delete"]);
        if values.contains("guardedPods=true") {
            // A budget is written by server-side apply, which is a patch, and needs `create` for a new object.
            expected.extend(["patch", "create"]);
        }
        let (granting, other) = match values.contains("watchNamespace") {
            true => ("Role", "ClusterRole"),
            false => ("ClusterRole", "Role"),
        };
        let resource = "poddisruptionbudgets";
        let granted = verbs(&objects, granting, resource);
        ensure!(granted == expected, "{values}: {granted:?}");
        let unexpected = verbs(&objects, other, resource);
        ensure!(unexpected.is_empty(), "{values}: {unexpected:?} in a {other}");
    }
    Ok(())
}

/// An upgrade may leave the guard out while pods are guarded. The operator then removes the guards, and so does the Job
/// if the operator is not running.
#[e2e::test]
async fn guards_can_be_removed_with_any_values(case: &mut Case) -> Result<()> {
    for values in VALUES {
        let options = ["--set", values];
        let plane = case.plane();
        let objects = plane.render_installed("gamekeeper", "gamekeeper-system", &options).await?;
        let jobs = of_kind(&objects, "Job");
        ensure!(jobs.len() == 1, "{values}: {jobs:#?}");
        let hook = jobs[0].pointer("/metadata/annotations/helm.sh~1hook");
        ensure!(hook == Some(&json!("pre-delete")), "{jobs:#?}");
        let is_scoped = values.contains("watchNamespace");
        let args = arguments(jobs[0])?;
        ensure!(args.contains(&"--namespace=games") == is_scoped, "{args:?}");
        let kind = if is_scoped { "Role" } else { "ClusterRole" };
        for (resource, needed) in [
            ("pods", ["list", "patch"]),
            ("poddisruptionbudgets", ["list", "delete"]),
            ("gamedeployments", ["list", "patch"]),
            ("gamestatefulsets", ["list", "patch"]),
        ] {
            let granted = verbs(&objects, kind, resource);
            let suffices = needed.iter().all(|verb| granted.contains(verb));
            ensure!(suffices, "{values}: {granted:?} on {resource}");
        }
        if is_scoped {
            let cluster_verbs = verbs(&objects, "ClusterRole", "namespaces");
            ensure!(cluster_verbs.contains("get"), "{values}: {cluster_verbs:?}");
        }
        let operator = of_kind(&objects, "Deployment")[0];
        let has_flag = arguments(operator)?.contains(&"--guarded-pods=false");
        ensure!(has_flag == values.contains("guardedPods=false"), "{values}");
    }
    Ok(())
}

fn arguments(workload: &Value) -> Result<Vec<&str>> {
    let args = workload.pointer("/spec/template/spec/containers/0/args");
    let args = args.and_then(Value::as_array).context("no arguments")?;
    Ok(args.iter().filter_map(Value::as_str).collect())
}

#[e2e::test]
async fn a_release_with_another_name_guards_pods(case: &mut Case) -> Result<()> {
    let long = "a-release-with-the-longest-name-that-helm-accepts-123";
    for (release, values, operator) in [
        ("other", "replicas=2", "other-gamekeeper"),
        ("my-gamekeeper", "replicas=2", "my-gamekeeper"),
        ("other", "fullnameOverride=keeper", "keeper"),
        (long, "replicas=2", "a-release-with-the-longest-name-that-helm-accepts-12"),
    ] {
        let options = ["--set", values, "--set=watchNamespace=games"];
        let plane = case.plane();
        let objects = plane.render_installed(release, "elsewhere", &options).await?;
        let named = |kind: &str, name: &str| {
            let has_name = |it: &&&Value| it["metadata"]["name"] == name;
            let found = of_kind(&objects, kind).into_iter();
            let found = found.collect::<Vec<_>>().iter().find(has_name).copied();
            found.with_context(|| format!("{release}: no {kind} {name}"))
        };
        let guard = format!("{operator}-guard");
        let policy = named("ValidatingAdmissionPolicy", &guard)?;
        let user = format!("'system:serviceaccount:elsewhere:{operator}'");
        let expression = &policy["spec"]["matchConditions"][0]["expression"];
        let is_exempt = expression.as_str().is_some_and(|it| it.contains(&user));
        ensure!(is_exempt, "{policy:#}");
        let binding = named("ValidatingAdmissionPolicyBinding", &guard)?;
        ensure!(binding["spec"]["policyName"] == guard.as_str(), "{binding:#}");

        named("ServiceAccount", operator)?;
        let deployment = named("Deployment", operator)?;
        let jobs = of_kind(&objects, "Job");
        let [job] = jobs[..] else {
            bail!("{release}: {jobs:#?}");
        };
        let job_name = text(job, "/metadata/name");
        ensure!(job_name.len() <= 63, "{job_name} is too long for a label");
        let prefix = &operator[..operator.len().min(30)];
        let has_name = job_name.starts_with(prefix) && job_name.contains("-unguard-");
        ensure!(has_name, "{job_name}");
        for workload in [deployment, job] {
            let account = &workload["spec"]["template"]["spec"]["serviceAccountName"];
            ensure!(*account == operator, "{workload:#}");
        }
        let args = arguments(job)?;
        let lease = format!("--lease-name={operator}");
        let deployment_flag = format!("--deployment=elsewhere/{operator}");
        ensure!(args.contains(&deployment_flag.as_str()), "{args:?}");
        ensure!(args.contains(&lease.as_str()), "{args:?}");
        let operator_args = arguments(deployment)?;
        ensure!(operator_args.contains(&lease.as_str()), "{operator_args:?}");

        for argument in [format!("--helm-release={release}"), format!("--job={job_name}")] {
            ensure!(args.contains(&argument.as_str()), "{args:?}");
        }

        // Of Deployments, Jobs and leases, the Job may access only those of its own release.
        let has_stop_rule = |it: &&Value| it["rules"].to_string().contains("\"deployments\"");
        let mut roles = of_kind(&objects, "Role").into_iter();
        let stop_role = roles.find(has_stop_rule);
        let stop_role = stop_role.context("no role to stop the operator")?;
        let rules = &stop_role["rules"];
        ensure!(rules[0]["resourceNames"] == json!([operator]), "{rules:#}");
        ensure!(rules[2]["resourceNames"] == json!([job_name]), "{rules:#}");
        let unguard = text(stop_role, "/metadata/name").to_owned();
        let lease_role = named("Role", &format!("{operator}-lease"))?;
        ensure!(lease_role["rules"][1]["resourceNames"] == json!([operator]), "{lease_role:#}");
        let account = json!([
            {"kind": "ServiceAccount", "name": operator, "namespace": "elsewhere"},
        ]);
        for binding in [unguard.as_str(), operator] {
            let binding = named("RoleBinding", binding)?;
            let role = &binding["roleRef"]["name"];
            ensure!(*role == binding["metadata"]["name"], "{binding:#}");
            ensure!(binding["subjects"] == account, "{binding:#}");
        }
    }
    Ok(())
}
