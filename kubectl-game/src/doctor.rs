//! `doctor`: whether the installation works: the API server, the kinds, the operator, its webhook, the guard, and what the
//! user may do. `Findings` are computed from what was read; what the user may not read is said to be unknown.

use std::cmp::Ordering;

use gamekeeper_core::api;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{ConditionType, GROUP, Reason};
use gamekeeper_core::text::counted;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::command::put;
use crate::error::Error;
use crate::game::Game;
use crate::options::ClusterOptions;
use crate::style::{Style, Tone};
use crate::table::{Cell, Table};

/// The label of all objects of the chart.
const CHART: &str = "app.kubernetes.io/name=gamekeeper";
/// How old the operator's last renewal of its lease may be, in seconds.
const LEASE_AGE: i64 = 60;

/// What was read of the cluster. None if the user may not read it.
#[derive(Default)]
struct Facts {
    version: String,
    crds: Option<Vec<Value>>,
    deployments: Option<Vec<Value>>,
    leases: Option<Vec<Value>>,
    webhooks: Option<Vec<Value>>,
    endpoints: Option<Vec<Value>>,
    policies: Option<Vec<Value>>,
    bindings: Option<Vec<Value>>,
    workloads: Option<Vec<Game>>,
    /// What the user may not do, and could with the chart's roles.
    denied: Option<Vec<String>>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    Unknown,
    Bad,
}

/// One check.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    subject: &'static str,
    health: Health,
    message: String,
    command: Option<String>,
}

fn good(subject: &'static str, message: impl Into<String>) -> Finding {
    Finding { subject, health: Health::Good, message: message.into(), command: None }
}

fn unknown(subject: &'static str) -> Finding {
    let message = "you may not read this".to_owned();
    Finding { subject, health: Health::Unknown, message, command: None }
}

fn bad(subject: &'static str, message: impl Into<String>, command: impl Into<String>) -> Finding {
    let command = Some(command.into());
    Finding { subject, health: Health::Bad, message: message.into(), command }
}

/// Runs all checks, prints them, and returns the exit code: 2 if one of them failed.
pub async fn doctor(target: &ClusterOptions) -> Result<u8, Error> {
    let cluster = Cluster::connect(target).await?;
    let facts = read(&cluster).await?;
    let findings = examine(&facts, Timestamp::now());
    let mut table = Table::new(["CHECK", "STATUS", "MESSAGE"]);
    for it in &findings {
        let state = match it.health {
            Health::Good => Cell::state(Tone::Good, "ok"),
            Health::Unknown => Cell::state(Tone::Plain, "unknown"),
            Health::Bad => Cell::state(Tone::Bad, "bad"),
        };
        table.push([it.subject.into(), state, it.message.as_str().into()]);
    }
    put(&table.render(Style::of_stdout()))?;
    let failed = findings.iter().filter(|it| it.health == Health::Bad);
    for command in failed.clone().filter_map(|it| it.command.as_deref()) {
        put(&format!("{command}{}\n", target.as_typed()))?;
    }
    Ok(if failed.count() > 0 { 2 } else { 0 })
}

fn examine(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    vec![
        good("API server", format!("Kubernetes {}", facts.version)),
        kinds(facts),
        operator(facts),
        lease(facts, now),
        webhook(facts),
        guard(facts),
        workloads(facts),
        rights(facts),
    ]
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn kinds(facts: &Facts) -> Finding {
    const SUBJECT: &str = "kinds";
    let Some(crds) = &facts.crds else {
        return unknown(SUBJECT);
    };
    let known = api::crds().map(|crd| crd.spec.names);
    let find = |plural: &str| {
        let name = format!("{plural}.{GROUP}");
        crds.iter().find(|crd| text(crd, "/metadata/name") == name)
    };
    let plurals = known.iter().map(|it| it.plural.as_str());
    let missing: Vec<&str> = plurals.filter(|it| find(it).is_none()).collect();
    if !missing.is_empty() {
        let message = format!("these CRDs are missing: {}", missing.join(", "));
        return bad(SUBJECT, message, "kubectl get customresourcedefinitions");
    }
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/causes";
    let is_old = |plural: &&str| find(plural).is_some_and(|crd| crd.pointer(status).is_none());
    let workloads = known.iter().filter(|it| WorkloadKind::parse(&it.kind).is_some());
    match workloads.map(|it| it.plural.as_str()).find(is_old) {
        Some(old) => bad(
            SUBJECT,
            format!("the CRD of {old} is of an older version: it has no status.causes"),
            "kubectl get customresourcedefinitions",
        ),
        None => good(SUBJECT, "all six CRDs are installed, in this plugin's version"),
    }
}

fn operator(facts: &Facts) -> Finding {
    const SUBJECT: &str = "operator";
    let Some(deployments) = &facts.deployments else {
        return unknown(SUBJECT);
    };
    let list = format!("kubectl get deployments -A -l {CHART}");
    let Some(operator) = deployments.first() else {
        return bad(SUBJECT, "there is no Deployment of the chart", list);
    };
    let (namespace, name) =
        (text(operator, "/metadata/namespace"), text(operator, "/metadata/name"));
    let describe = format!("kubectl describe deployment {name} -n {namespace}");
    let number = |pointer: &str| operator.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let (wanted, available) = (number("/spec/replicas"), number("/status/availableReplicas"));
    let version = operator["metadata"]["labels"]["app.kubernetes.io/version"].as_str();
    let version = version.unwrap_or("?");
    match available.cmp(&wanted.max(1)) {
        Ordering::Less => bad(
            SUBJECT,
            format!("{namespace}/{name}: {available} of {wanted} replicas are available"),
            describe,
        ),
        _ if version != env!("CARGO_PKG_VERSION") => bad(
            SUBJECT,
            format!(
                "{namespace}/{name} has version {version}, this plugin {}",
                env!("CARGO_PKG_VERSION")
            ),
            describe,
        ),
        _ => good(
            SUBJECT,
            format!("{namespace}/{name}: {available} of {wanted} replicas, version {version}"),
        ),
    }
}

fn lease(facts: &Facts, now: Timestamp) -> Finding {
    const SUBJECT: &str = "leader";
    let (Some(leases), Some(deployments)) = (&facts.leases, &facts.deployments) else {
        return unknown(SUBJECT);
    };
    let Some(operator) = deployments.first() else {
        return bad(
            SUBJECT,
            "no operator, so no leader",
            format!("kubectl get pods -A -l {CHART}"),
        );
    };
    let name = text(operator, "/metadata/name");
    let is_own = |lease: &&Value| text(lease, "/spec/holderIdentity").starts_with(name);
    let namespace = text(operator, "/metadata/namespace");
    let see = format!("kubectl get leases -n {namespace}");
    let Some(lease) = leases.iter().find(is_own) else {
        return bad(SUBJECT, "no replica holds the lease", see);
    };
    let renewed: Option<Timestamp> = text(lease, "/spec/renewTime").parse().ok();
    let age = renewed.map_or(i64::MAX, |at| now.duration_since(at).as_secs());
    let holder = text(lease, "/spec/holderIdentity");
    match age < LEASE_AGE {
        true => good(SUBJECT, format!("{holder} renewed its lease {} s ago", age.max(0))),
        false => bad(SUBJECT, format!("{holder} no longer renews its lease"), see),
    }
}

fn webhook(facts: &Facts) -> Finding {
    const SUBJECT: &str = "webhook";
    let Some(webhooks) = &facts.webhooks else {
        return unknown(SUBJECT);
    };
    let see = format!("kubectl get validatingwebhookconfigurations -l {CHART}");
    let Some(configuration) = webhooks.first() else {
        let message = "not installed: what it would refuse is only detected later";
        return Finding { health: Health::Unknown, ..good(SUBJECT, message) };
    };
    let client = &configuration["webhooks"][0]["clientConfig"];
    if text(client, "/caBundle").is_empty() {
        return bad(SUBJECT, "its configuration has no caBundle yet, so it is not called", see);
    }
    let url = text(client, "/url");
    if !url.is_empty() {
        let message = format!("is called at {url}, where this command cannot check it");
        return Finding { health: Health::Unknown, ..good(SUBJECT, message) };
    }
    let (namespace, service) = (text(client, "/service/namespace"), text(client, "/service/name"));
    let Some(slices) = &facts.endpoints else {
        return unknown(SUBJECT);
    };
    let is_of_service = |slice: &&Value| {
        text(slice, "/metadata/namespace") == namespace
            && slice["metadata"]["labels"]["kubernetes.io/service-name"] == service
    };
    let endpoints = slices.iter().filter(is_of_service);
    let endpoints = endpoints.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let ready = endpoints.filter(|it| it["conditions"]["ready"] != false).count();
    match ready {
        0 => bad(
            SUBJECT,
            format!("Service {namespace}/{service} has no ready endpoint"),
            format!("kubectl get endpointslices -n {namespace}"),
        ),
        _ => good(SUBJECT, format!("in force, {}", counted(ready, "endpoint", "endpoints"))),
    }
}

fn guard(facts: &Facts) -> Finding {
    const SUBJECT: &str = "guard";
    let (Some(policies), Some(bindings)) = (&facts.policies, &facts.bindings) else {
        return unknown(SUBJECT);
    };
    let is_guard = |policy: &&Value| text(policy, "/metadata/name").ends_with("guarded-pods");
    let Some(policy) = policies.iter().find(is_guard) else {
        let message = "not installed: pods cannot be guarded";
        return Finding { health: Health::Unknown, ..good(SUBJECT, message) };
    };
    let name = text(policy, "/metadata/name");
    match bindings.iter().any(|binding| text(binding, "/spec/policyName") == name) {
        true => good(SUBJECT, format!("policy {name} is in force")),
        false => bad(
            SUBJECT,
            format!("policy {name} has no binding, so it guards no pod"),
            "kubectl get validatingadmissionpolicybindings",
        ),
    }
}

fn workloads(facts: &Facts) -> Finding {
    const SUBJECT: &str = "workloads";
    let Some(games) = &facts.workloads else {
        return unknown(SUBJECT);
    };
    let has = |game: &&Game, type_: ConditionType, reason: Reason| {
        let condition = game.status.condition(type_);
        condition.is_some_and(|it| it.reason == reason.to_string())
    };
    let problems = [
        (
            games.iter().find(|it| !it.is_observed()),
            "the operator has not observed its last change",
        ),
        (
            games.iter().find(|it| has(it, ConditionType::Guarded, Reason::GuardNotInForce)),
            "its guard is not in force",
        ),
        (
            games.iter().find(|it| has(it, ConditionType::Ready, Reason::Unreadable)),
            "the operator cannot read it",
        ),
    ];
    let found = problems.into_iter().find_map(|(game, why)| Some((game?, why)));
    match found {
        Some((game, why)) => bad(
            SUBJECT,
            format!("{} in namespace {}: {why}", game.short_name(), game.namespace),
            format!("kubectl game status {} -n {}", game.short_name(), game.namespace),
        ),
        None => good(
            SUBJECT,
            format!("{}, all observed", counted(games.len(), "workload", "workloads")),
        ),
    }
}

fn rights(facts: &Facts) -> Finding {
    const SUBJECT: &str = "your rights";
    match facts.denied.as_deref() {
        None => unknown(SUBJECT),
        Some([]) => good(SUBJECT, "all that this plugin needs in this namespace"),
        Some(denied) => {
            bad(SUBJECT, format!("you may not {}", denied.join(", ")), "kubectl auth can-i --list")
        }
    }
}

async fn read(cluster: &Cluster) -> Result<Facts, Error> {
    const ADMISSION: &str = "admissionregistration.k8s.io";
    let deployments = list(cluster, ("apps", "Deployment"), None, CHART).await?;
    let operator = deployments.as_ref().and_then(|it| it.first());
    let namespace = operator.map(|it| text(it, "/metadata/namespace").to_owned());
    let in_namespace = async |group: &str, kind: &str| match &namespace {
        Some(namespace) => list(cluster, (group, kind), Some(namespace), "").await,
        None => Ok(Some(Vec::new())),
    };
    Ok(Facts {
        version: cluster.version().await?,
        crds: list(cluster, ("apiextensions.k8s.io", "CustomResourceDefinition"), None, "").await?,
        leases: in_namespace("coordination.k8s.io", "Lease").await?,
        endpoints: in_namespace("discovery.k8s.io", "EndpointSlice").await?,
        webhooks: list(cluster, (ADMISSION, "ValidatingWebhookConfiguration"), None, CHART).await?,
        policies: list(cluster, (ADMISSION, "ValidatingAdmissionPolicy"), None, CHART).await?,
        bindings: list(cluster, (ADMISSION, "ValidatingAdmissionPolicyBinding"), None, "").await?,
        workloads: workloads_of(cluster).await?,
        denied: denied(cluster).await?,
        deployments,
    })
}

/// The objects of a kind, of version v1, in one namespace or all; None if the user may not list them.
async fn list(
    cluster: &Cluster,
    (group, kind): (&str, &str),
    namespace: Option<&str>,
    labels: &str,
) -> Result<Option<Vec<Value>>, Error> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let params = ListParams::default().labels(labels);
    let api = cluster.objects(&resource, namespace);
    match cluster.send(async || api.list(&params).await).await {
        Ok(found) => values(found.items).map(Some),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) if error.is_404() => Ok(Some(Vec::new())),
        Err(error) => Err(error),
    }
}

fn values(objects: Vec<DynamicObject>) -> Result<Vec<Value>, Error> {
    let values = objects.iter().map(serde_json::to_value);
    values.collect::<Result<_, _>>().map_err(|error| Error::Unexpected(error.to_string()))
}

/// The workloads of all namespaces, or else of the user's.
async fn workloads_of(cluster: &Cluster) -> Result<Option<Vec<Game>>, Error> {
    for all_namespaces in [true, false] {
        match cluster.list(all_namespaces).await {
            Ok(games) => return Ok(Some(games)),
            Err(error) if error.is_forbidden() => {}
            Err(Error::NotFound(_)) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What the user may not do in the namespace.
async fn denied(cluster: &Cluster) -> Result<Option<Vec<String>>, Error> {
    let kinds = WorkloadKind::ALL.map(|kind| format!("{}s", crate::kind::singular(kind)));
    let mut needed: Vec<(&str, &str, &str)> = Vec::new();
    for kind in &kinds {
        needed.extend([("list", GROUP, kind.as_str()), ("patch", GROUP, kind.as_str())]);
    }
    needed.extend([
        ("list", GROUP, "hookruns"),
        ("list", "", "pods"),
        ("patch", "", "pods"),
        ("list", "apps", "controllerrevisions"),
    ]);
    let mut denied = Vec::new();
    for (verb, group, resource) in needed {
        let attributes = ResourceAttributes {
            namespace: Some(cluster.namespace.clone()),
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api = cluster.access_reviews();
        let answer = cluster.send(async || api.create(&PostParams::default(), &review).await).await;
        match answer {
            Ok(review) if review.status.as_ref().is_some_and(|it| it.allowed) => {}
            Ok(_) => denied.push(format!("{verb} {resource}")),
            Err(error) if error.is_forbidden() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(denied))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T10:05:00Z".parse().expect("a time")
    }

    /// An installation in which everything works.
    fn healthy() -> Facts {
        let crd = |plural: &str| {
            let causes = json!({"properties": {"status": {"properties": {"causes": {}}}}});
            json!({"metadata": {"name": format!("{plural}.{GROUP}")},
                "spec": {"versions": [{"schema": {"openAPIV3Schema": causes}}]}})
        };
        let plurals = [
            "clusters",
            "gamedeployments",
            "gamestatefulsets",
            "hookruns",
            "hooktemplates",
            "sidecarsets",
        ];
        let named = |name: &str| json!({"metadata": {"name": name, "namespace": "gk"}});
        let mut operator = named("gamekeeper");
        operator["metadata"]["labels"] =
            json!({"app.kubernetes.io/version": env!("CARGO_PKG_VERSION")});
        operator["spec"] = json!({"replicas": 2});
        operator["status"] = json!({"availableReplicas": 2});
        let mut lease = named("gamekeeper");
        lease["spec"] =
            json!({"holderIdentity": "gamekeeper-x", "renewTime": "2026-11-21T10:04:57.000000Z"});
        let mut configuration = named("gamekeeper");
        let service = json!({"namespace": "gk", "name": "webhook"});
        configuration["webhooks"] =
            json!([{"clientConfig": {"caBundle": "abc", "service": service}}]);
        let mut slice = named("webhook-1");
        slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": "webhook"});
        slice["endpoints"] = json!([{"conditions": {"ready": true}}]);
        let mut binding = named("binding");
        binding["spec"] = json!({"policyName": "gamekeeper-guarded-pods"});
        Facts {
            version: "v1.36.0".to_owned(),
            crds: Some(plurals.map(crd).to_vec()),
            deployments: Some(vec![operator]),
            leases: Some(vec![lease]),
            webhooks: Some(vec![configuration]),
            endpoints: Some(vec![slice]),
            policies: Some(vec![named("gamekeeper-guarded-pods")]),
            bindings: Some(vec![binding]),
            workloads: Some(vec![crate::fixture::stateful_set().game]),
            denied: Some(Vec::new()),
        }
    }

    type Break = fn(&mut Facts);

    fn none() -> Option<Vec<Value>> {
        Some(Vec::new())
    }

    #[test]
    fn nothing_is_wrong_with_a_healthy_installation() {
        for finding in examine(&healthy(), now()) {
            assert_eq!(finding.health, Health::Good, "{finding:?}");
        }
    }

    #[test]
    fn what_may_not_be_read_is_unknown() {
        for finding in &examine(&Facts::default(), now())[1..] {
            assert_eq!(finding.health, Health::Unknown, "{finding:?}");
        }
    }

    #[test]
    fn each_problem_is_found_with_a_command() {
        let breaks: [(&str, &str, Break); 11] = [
            ("kinds", "missing", |it| it.crds = none()),
            ("kinds", "older version", |it| {
                let crds = it.crds.as_mut().expect("CRDs");
                crds[1]["spec"] = json!({"versions": [{}]});
            }),
            ("operator", "no Deployment", |it| it.deployments = none()),
            ("operator", "1 of 2", |it| {
                it.deployments.as_mut().expect("one")[0]["status"]["availableReplicas"] = json!(1);
            }),
            ("operator", "has version 0.0.1", |it| {
                let labels = &mut it.deployments.as_mut().expect("one")[0]["metadata"]["labels"];
                labels["app.kubernetes.io/version"] = json!("0.0.1");
            }),
            ("leader", "no replica holds", |it| it.leases = none()),
            ("leader", "no longer renews", |it| {
                let lease = &mut it.leases.as_mut().expect("one")[0];
                lease["spec"]["renewTime"] = json!("2026-11-21T09:04:57.000000Z");
            }),
            ("webhook", "no ready endpoint", |it| it.endpoints = none()),
            ("webhook", "no caBundle", |it| {
                let webhook = &mut it.webhooks.as_mut().expect("one")[0]["webhooks"][0];
                webhook["clientConfig"]["caBundle"] = json!("");
            }),
            ("guard", "no binding", |it| it.bindings = none()),
            ("your rights", "you may not patch pods", |it| {
                it.denied = Some(vec!["patch pods".to_owned()]);
            }),
        ];
        for (subject, message, break_it) in breaks {
            let mut facts = healthy();
            break_it(&mut facts);
            let findings = examine(&facts, now());
            let found = findings.iter().find(|it| it.subject == subject).expect("the check");
            assert_eq!(found.health, Health::Bad, "{found:?}");
            assert!(found.message.contains(message), "{found:?}");
            assert!(found.command.as_ref().is_some_and(|it| it.starts_with("kubectl ")));
        }
    }

    #[test]
    fn a_workload_that_nobody_observes_is_found() {
        let mut facts = healthy();
        let mut game = crate::fixture::stateful_set().game;
        game.generation += 1;
        facts.workloads = Some(vec![game]);
        let findings = examine(&facts, now());
        let found = findings.iter().find(|it| it.subject == "workloads").expect("the check");
        assert_eq!(found.health, Health::Bad, "{found:?}");
        assert!(found.message.contains("gsts/world in namespace prod"), "{found:?}");
    }
}
