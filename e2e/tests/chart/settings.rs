//! Values that platform teams set: what each renders, and what is refused because it would have no effect.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::chart::{render, render_as};
use serde_json::{Value, json};

use super::names::has_number;
use super::of_kind;

/// Settings, each with the kind of object in which it appears, the place, and the content as JSON.
#[rustfmt::skip]
const SETTINGS: [(&str, &str, &str, &str); 41] = [
    ("revisionHistoryLimit=2", "Deployment", "/spec/revisionHistoryLimit", "2"),
    ("deploymentAnnotations.a=b", "Deployment", "/metadata/annotations/a", r#""b""#),
    ("hostNetwork=true", "Deployment", "POD/hostNetwork", "true"),
    ("hostNetwork=true", "Deployment", "POD/dnsPolicy", r#""ClusterFirstWithHostNet""#),
    ("dnsPolicy=None", "Deployment", "POD/dnsPolicy", r#""None""#),
    ("dnsConfig.nameservers={10.0.0.10}", "Deployment", "POD/dnsConfig/nameservers/0", r#""10.0.0.10""#),
    ("hostAliases[0].ip=10.0.0.1", "Deployment", "POD/hostAliases/0/ip", r#""10.0.0.1""#),
    ("podSecurityContext.fsGroup=7", "Deployment", "POD/securityContext/fsGroup", "7"),
    ("podSecurityContext.runAsUser=1000650000", "Deployment", "POD/securityContext/runAsUser", "1000650000"),
    ("securityContext.privileged=false", "Deployment", "CONTAINER/securityContext/privileged", "false"),
    ("extraVolumes[0].name=ca", "Deployment", "POD/volumes/1/name", r#""ca""#),
    ("extraVolumeMounts[0].mountPath=/ca", "Deployment", "CONTAINER/volumeMounts/1/mountPath", r#""/ca""#),
    ("extraEnvFrom[0].secretRef.name=x", "Deployment", "CONTAINER/envFrom/0/secretRef/name", r#""x""#),
    ("livenessProbe.failureThreshold=9", "Deployment", "CONTAINER/livenessProbe/failureThreshold", "9"),
    ("startupProbe.periodSeconds=3", "Deployment", "CONTAINER/startupProbe/periodSeconds", "3"),
    ("startupProbe.periodSeconds=3", "Deployment", "CONTAINER/startupProbe/httpGet/path", r#""/healthz""#),
    ("metrics.port=9090", "Deployment", "CONTAINER/ports/0/containerPort", "9090"),
    ("metrics.port=9090", "Service", "/spec/ports/0/port", "9090"),
    ("lease.durationSeconds=30", "Deployment", "CONTAINER/args/5", r#""--lease-duration=30s""#),
    ("serviceAccount.name=runner", "ServiceAccount", "/metadata/name", r#""runner""#),
    ("serviceAccount.name=runner", "RoleBinding", "/subjects/0/name", r#""runner""#),
    ("serviceAccount.name=runner", "FlowSchema", "/spec/rules/0/subjects/0/serviceAccount/name", r#""runner""#),
    ("serviceAccount.create=false,serviceAccount.name=runner", "Deployment", "POD/serviceAccountName", r#""runner""#),
    ("commonLabels.team=x", "Deployment", "/spec/template/metadata/labels/team", r#""x""#),
    ("commonLabels.team=x", "CustomResourceDefinition", "/metadata/labels/team", r#""x""#),
    ("commonLabels.app\\.kubernetes\\.io/instance=x", "Deployment", "/metadata/labels/app.kubernetes.io~1instance", r#""gamekeeper""#),
    ("admission.annotations.admissions\\.enforcer/disabled=yes", "ValidatingWebhookConfiguration", "/metadata/annotations/admissions.enforcer~1disabled", r#""yes""#),
    ("admission.annotations.a=b", "MutatingWebhookConfiguration", "/metadata/annotations/a", r#""b""#),
    ("imagePullSecrets[0].name=a", "Deployment", "POD/imagePullSecrets", r#"[{"name": "a"}]"#),
    ("imagePullSecrets={a,b},global.imagePullSecrets={b,c}", "Deployment", "POD/imagePullSecrets", r#"[{"name": "a"}, {"name": "b"}, {"name": "c"}]"#),
    ("global.imageRegistry=mirror:5000,global.more.than=that", "Deployment", "CONTAINER/image", r#""mirror:5000/gamekeeper:0.1.0""#),
    ("global.imageRegistry=mirror:5000,image.repository=quay.io/team/gamekeeper", "Deployment", "CONTAINER/image", r#""mirror:5000/team/gamekeeper:0.1.0""#),
    ("metrics.serviceMonitor.interval=1m30s", "ServiceMonitor", "/spec/endpoints/0/interval", r#""1m30s""#),
    ("metrics.serviceMonitor.scrapeTimeout=20s", "ServiceMonitor", "/spec/endpoints/0/scrapeTimeout", r#""20s""#),
    ("metrics.serviceMonitor.namespace=monitoring", "ServiceMonitor", "/metadata/namespace", r#""monitoring""#),
    ("metrics.serviceMonitor.namespace=monitoring", "ServiceMonitor", "/spec/namespaceSelector/matchNames", r#"["gamekeeper-system"]"#),
    ("metrics.serviceMonitor.relabelings[0].action=labelmap", "ServiceMonitor", "/spec/endpoints/0/relabelings/0/action", r#""labelmap""#),
    ("metrics.serviceMonitor.metricRelabelings[0].action=drop", "ServiceMonitor", "/spec/endpoints/0/metricRelabelings/1/action", r#""drop""#),
    ("metrics.alerts.namespace=monitoring", "PrometheusRule", "/metadata/namespace", r#""monitoring""#),
    ("metrics.dashboards.namespace=grafana", "ConfigMap", "/metadata/namespace", r#""grafana""#),
    ("metrics.dashboards.annotations.grafana_folder=Games", "ConfigMap", "/metadata/annotations/grafana_folder", r#""Games""#),
];

#[e2e::test]
async fn each_setting_is_rendered(case: &mut Case) -> Result<()> {
    let monitoring = "--set=metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true,\
        metrics.dashboards.enabled=true";
    for (setting, kind, place, expected) in SETTINGS {
        let objects = render(&case.plane().helm, &[monitoring, "--set", setting]).await?;
        let object = of_kind(&objects, kind).into_iter().next();
        let object = object.with_context(|| format!("{setting}: no {kind}"))?;
        let place = place.replace("CONTAINER", "POD/containers/0");
        let place = place.replace("POD", "/spec/template/spec");
        let found = object.pointer(&place);
        let expected: Value = serde_json::from_str(expected)?;
        ensure!(found == Some(&expected), "{setting}: {place} is {found:?}: {object:#}");
    }
    // The policies exempt the operator under the name of its account.
    let objects = render(&case.plane().helm, &["--set=serviceAccount.name=runner"]).await?;
    let text = Value::from(objects).to_string();
    ensure!(text.contains("system:serviceaccount:gamekeeper-system:runner"), "{text}");
    ensure!(!text.contains("system:serviceaccount:gamekeeper-system:gamekeeper"), "{text}");
    // Nodes of other operating systems cannot run the image.
    let objects = render(&case.plane().helm, &["--set=nodeSelector.pool=infra"]).await?;
    let selector = of_kind(&objects, "Deployment")[0].pointer("/spec/template/spec/nodeSelector");
    let expected = json!({"kubernetes.io/os": "linux", "pool": "infra"});
    ensure!(selector == Some(&expected), "{selector:?}");
    let values =
        r#"[{"kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}, "kind: Secret"]"#;
    let objects =
        render(&case.plane().helm, &["--set-json", &format!("extraObjects={values}")]).await?;
    let has = |extra: Value| objects.contains(&extra);
    ensure!(has(json!({"kind": "ConfigMap", "metadata": {"name": "gamekeeper-x"}})));
    ensure!(has(json!({"kind": "Secret"})));
    Ok(())
}

#[e2e::test]
async fn names_that_look_like_numbers_stay_text(case: &mut Case) -> Result<()> {
    let values = [
        "fullnameOverride=100234",
        "serviceAccount.name=100234",
        "priorityClass.name=100234",
        "imagePullSecrets={100234},global.imagePullSecrets={100234}",
        "bootstrapHooks.configMap=100234,bootstrapHooks.image=100234",
        "guardedPods.priorityClass.name=100234",
        "image.tag=100234",
    ];
    let options = values.map(|value| format!("--set-string={value}"));
    let enabled = "--set=metrics.serviceMonitor.enabled=true,metrics.dashboards.enabled=true,\
        metrics.alerts.enabled=true,lifecycleHooks.enabled=true,priorityClass.create=false";
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.push(enabled);
    let plane = case.plane();
    let rendered = render_as(&plane.helm, "100234", "100234", &options).await?;
    let installed = plane.render_installed("100234", "100234", &options).await?;
    for object in rendered.iter().chain(&installed) {
        ensure!(!has_number(object, 100_234), "{object:#}");
    }
    Ok(())
}

/// The operator accepts each flag once, and would not start.
#[e2e::test]
async fn arguments_of_the_chart_cannot_be_given_twice(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let all = "watchNamespace=games,hooks.exec={games},nodes.goingTaints={a},admission.guardedPods=false,\
        guardedPods.priorityClass.name=high,hooks.allowLinkLocal=true,hooks.allowLoopback=true";
    let lifecycle = "lifecycleHooks.enabled=true,sidecars.namespaces=All";
    for values in [all, "sidecars.enabled=false", lifecycle] {
        let objects = render(program, &["--set", values]).await?;
        let args =
            of_kind(&objects, "Deployment")[0].pointer("/spec/template/spec/containers/0/args");
        let args = args.and_then(Value::as_array).context("no arguments")?;
        for arg in args.iter().filter_map(Value::as_str).skip(1) {
            let flag = arg.split('=').next().unwrap_or_default();
            // Its path is that of a volume of the chart.
            let fix = if flag == "--instance-file" { "" } else { ": use the value " };
            let error = refusal(case, &format!("extraArgs={{{flag}=x}}")).await?;
            let expected = format!("extraArgs: the chart sets {flag} itself{fix}");
            ensure!(error.contains(&expected), "{error}");
            let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
            let variable = format!("GAMEKEEPER_{variable}");
            let value = format!("extraEnv[0].name={variable},extraEnv[0].value=x");
            let error = refusal(case, &value).await?;
            let expected = format!("extraEnv: {variable} has no effect{fix}");
            ensure!(error.contains(&expected), "{error}");
        }
    }
    let error = refusal(case, "extraArgs={--leader-elect=true,--leader-elect=false}").await?;
    ensure!(error.contains("extraArgs: --leader-elect is there twice"), "{error}");
    Ok(())
}

async fn refusal(case: &Case, values: &str) -> Result<String> {
    match render(&case.plane().helm, &["--set", values]).await {
        Ok(_) => anyhow::bail!("{values} is not refused"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

#[e2e::test]
async fn values_without_an_effect_are_refused(case: &mut Case) -> Result<()> {
    for (values, reason) in [
        ("enabled=false", "enabled: false is for the condition of an umbrella chart"),
        ("serviceAccount.create=false", "serviceAccount.name: name an existing service account"),
        ("metrics.port=9443", "admission.port: 9443 is the port of metrics.port"),
        (
            "metrics.alerts.enabled=true,metrics.alerts.disabled={Nope}",
            "there is no alert Nope; the alerts are",
        ),
        ("livenessProbe.httpGet.path=/x", "additional properties 'httpGet' not allowed"),
        ("metrics.serviceMonitor.interval=30", "'/metrics/serviceMonitor/interval'"),
        ("lease.durationSeconds=2", "'/lease/durationSeconds': minimum"),
        ("imagePullSecrets[0].nme=a", "'/imagePullSecrets/0'"),
        ("uninstall.job=Maybe", "'/uninstall/job': value must be one of"),
        ("dnsPolicy=Cluster", "'/dnsPolicy': value must be one of"),
    ] {
        let error = refusal(case, values).await?;
        ensure!(error.contains(reason), "{values}: {error}");
    }
    Ok(())
}

#[e2e::test]
async fn single_alerts_can_be_left_out(case: &mut Case) -> Result<()> {
    let rules = async |values: &str| -> Result<Vec<String>> {
        let values = format!("metrics.alerts.enabled=true{values}");
        let objects = render(&case.plane().helm, &["--set", &values]).await?;
        let groups = of_kind(&objects, "PrometheusRule")[0]["spec"]["groups"].clone();
        let groups = groups.as_array().cloned().context("no groups")?;
        let rules = groups.iter().flat_map(|it| it["rules"].as_array().into_iter().flatten());
        Ok(rules.filter_map(|it| it["alert"].as_str().map(str::to_owned)).collect())
    };
    let all = rules("").await?;
    let mut left = rules(",metrics.alerts.disabled={GamekeeperRolloutStuck}").await?;
    left.push("GamekeeperRolloutStuck".to_owned());
    left.sort();
    let mut sorted = all.clone();
    sorted.sort();
    ensure!(left == sorted && all.len() > 5, "{left:?} {all:?}");
    Ok(())
}

#[e2e::test]
async fn pods_of_jobs_have_settings_of_their_own(case: &mut Case) -> Result<()> {
    let values = "podLabels.team=x,podLabels.mesh=on,jobs.podLabels.mesh=off,podAnnotations.a=b,\
        jobs.podAnnotations.a=c,priorityClass.create=false,priorityClass.name=high,tolerations[0].operator=Exists,\
        bootstrapHooks.configMap=b,bootstrapHooks.image=b,networkPolicy.egress[0].ports[0].port=443";
    let options = ["--set", values];
    let objects =
        case.plane().render_installed("gamekeeper", "gamekeeper-system", &options).await?;
    let jobs = of_kind(&objects, "Job");
    ensure!(jobs.len() == 4, "{jobs:#?}");
    let policies = of_kind(&objects, "NetworkPolicy");
    for job in jobs {
        let template = &job["spec"]["template"];
        let metadata = &template["metadata"];
        let labels = &metadata["labels"];
        ensure!(labels["team"] == "x" && labels["mesh"] == "off", "{metadata:#}");
        ensure!(metadata["annotations"]["a"] == "c", "{metadata:#}");
        ensure!(template["spec"]["tolerations"].is_array(), "{job:#}");
        let selects = |policy: &&&Value| {
            let selector = policy["spec"]["podSelector"]["matchLabels"].as_object();
            selector.is_some_and(|it| it.iter().all(|(key, value)| labels[key] == *value))
        };
        let selecting: Vec<&&Value> = policies.iter().filter(selects).collect();
        ensure!(selecting.len() == 1, "{selecting:#?}");
        ensure!(selecting[0]["spec"]["egress"][0]["ports"][0]["port"] == 443, "{selecting:#?}");
        if labels["app.kubernetes.io/component"] == "unguard" {
            ensure!(template["spec"]["priorityClassName"] == "high", "{job:#}");
            ensure!(job["spec"]["activeDeadlineSeconds"] == 240, "{job:#}");
        }
    }
    Ok(())
}
