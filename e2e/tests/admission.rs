//! Admission: the webhook, its certificates, the linter, and which workloads may be deleted. All of it
//! as the chart installs it, but for the address: operators run beside the cluster here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::bad_manifest::BadManifest;
use e2e::case::{Case, GAME};
use e2e::chart::render;
use e2e::command::run_to_end;
use e2e::control_plane::repository;
use e2e::manifest::Game;
use e2e::operator::{ACCOUNT, free_port};
use e2e::wait::{eventually, throughout};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

e2e::tests![
    bad_manifests_are_refused_by_the_webhook_in_the_linters_words,
    what_was_stored_before_can_still_be_worked_on,
    a_dead_operator_blocks_nothing_and_a_standby_serves_too,
    certificates_are_renewed_without_a_gap_or_a_restart,
    a_protected_workload_is_deleted_only_as_its_label_says,
];

/// A template that only the webhook refuses.
const BAD: &str = "
apiVersion: tkex.tencent.com/v1alpha1
kind: HookTemplate
metadata: {name: probe}
spec:
  metrics:
  - name: players
    successCondition: result contains \"idle\"
    provider: {web: {url: \"http://10.0.0.1\"}}
";

/// The chart's objects for a test of its own: in its namespace, for its account, and called where its
/// operator listens.
struct Installed {
    /// Name of Secret and configuration.
    name: String,
    /// Where the test's operator listens.
    port: u16,
}

impl Installed {
    async fn of(case: &mut Case, lifetime: &str) -> Result<Self> {
        let name = format!("admission-{}", case.namespace);
        let name = name[..name.len().min(52)].trim_end_matches('-').to_owned();
        let port = free_port().await?;
        let objects = rendered(case, &name, "admission.deletionProtection=None").await?;
        let mut mine = objects;
        mine.retain(|object| {
            let of_webhook = object["metadata"]["name"] == format!("{name}-webhook").as_str();
            of_webhook && object["kind"] != "Service"
        });
        ensure!(mine.len() == 6, "{} objects", mine.len());
        case.plane().apply(&mine).await?;
        let name = format!("{name}-webhook");
        let installed = Installed { name, port };
        case.operator.terminate().await?;
        case.operator.tell(installed.flags(port, lifetime));
        installed.call(case, port).await?;
        case.operator.start().await?;
        Ok(installed)
    }

    fn flags(&self, port: u16, lifetime: &str) -> Vec<String> {
        vec![
            format!("--webhook-listen=127.0.0.1:{port}"),
            format!("--webhook-name={}", self.name),
            format!("--webhook-certificate-lifetime={lifetime}"),
        ]
    }

    /// From now on the API server calls this port.
    async fn call(&self, case: &Case, port: u16) -> Result<()> {
        let url = format!("https://localhost:{port}/validate");
        let patch = json!([
            {"op": "remove", "path": "/webhooks/0/clientConfig/service"},
            {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": url},
        ]);
        let again =
            json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}]);
        let configuration = self.configuration(case).await?;
        let called = &configuration["webhooks"][0]["clientConfig"];
        let patch = if called["url"].is_string() {
            again
        } else {
            patch
        };
        let patch = format!("-p={patch}");
        let kind = "validatingwebhookconfiguration";
        let args = ["patch", kind, &self.name, "--type=json", &patch];
        case.plane().kubectl(&args, "").await?;
        Ok(())
    }

    async fn configuration(&self, case: &Case) -> Result<Value> {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        case.plane().get(&format!("{path}/{}", self.name)).await
    }

    /// The certificate that is served now.
    async fn served(&self, case: &Case) -> Result<String> {
        let secret = case.get(&format!("secrets/{}", self.name)).await?;
        let served = secret["data"]["tls.crt"].as_str();
        Ok(served.context("no certificate")?.to_owned())
    }

    /// Connects as the API server would, with the authorities that it is told of.
    async fn shake_hands(&self, case: &Case) -> Result<()> {
        let configuration = self.configuration(case).await?;
        let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
        let bundle: ByteString = serde_json::from_value(bundle.clone())?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&bundle.0) {
            roots.add(authority?)?;
        }
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("localhost")?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .context("what is served is not trusted")?;
        Ok(())
    }

    /// Waits until the API server asks the webhook.
    async fn until_asked(&self, case: &Case) -> Result<()> {
        case.eventually("the webhook is asked", async || refused(case).await)
            .await
    }

    /// What is not of the test's namespace goes with it.
    async fn remove(&self, case: &Case) -> Result<()> {
        for kind in [
            "validatingwebhookconfiguration",
            "clusterrolebinding",
            "clusterrole",
        ] {
            case.plane()
                .kubectl(&["delete", kind, &self.name], "")
                .await?;
        }
        Ok(())
    }
}

/// The chart, rendered for a test's namespace and account.
async fn rendered(case: &Case, name: &str, value: &str) -> Result<Vec<Value>> {
    let override_ = format!("fullnameOverride={name}");
    let scope = format!("watchNamespace={}", case.namespace);
    let set = ["--set", &override_, "--set", value, "--set", &scope];
    let objects = render(&case.plane().helm, &set).await?;
    let account = format!("system:serviceaccount:gamekeeper-system:{name}");
    let own = format!("system:serviceaccount:{}:{ACCOUNT}", case.namespace);
    let moved = objects.into_iter().map(|mut object| {
        if object["subjects"].is_array() {
            object["subjects"][0]["name"] = json!(ACCOUNT);
        }
        let text = object.to_string().replace(&account, &own);
        let text = text.replace("\"gamekeeper-system\"", &format!("\"{}\"", case.namespace));
        Ok(serde_json::from_str(&text)?)
    });
    moved.collect()
}

/// Fails unless the webhook refuses what only it can.
async fn refused(case: &Case) -> Result<()> {
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    let said = case.refused(&apply, BAD).await?;
    let expected = "The HookTemplate \"probe\" is invalid: spec.metrics[0].successCondition: ";
    ensure!(said.contains(expected), "{said}");
    Ok(())
}

async fn bad_manifests_are_refused_by_the_webhook_in_the_linters_words(
    case: &mut Case,
) -> Result<()> {
    let installed = Installed::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    let bad = BadManifest::all("e2e/manifests/admission")?;
    BadManifest::prepare_all(&bad, case).await?;
    let with_template = bad.iter().find(|bad| bad.after.is_some());
    let with_template = with_template.context("one needs a template")?;
    case.eventually("the operator knows the templates", async || {
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        case.refused(&apply, &with_template.text).await
    })
    .await?;
    BadManifest::check_all(&bad, case).await?;
    ensure!(bad.len() >= 50, "only {} bad manifests", bad.len());

    let mut lint = Command::new(case.operator.binary());
    lint.args(["lint", "e2e/manifests/admission"])
        .current_dir(repository());
    let linted = run_to_end(&mut lint).await?;
    ensure!(linted.code == 1, "{linted:?}");
    for bad in &bad {
        let file = bad.path.strip_prefix(repository())?.to_string_lossy();
        let of_file: BTreeSet<&str> = linted
            .stdout
            .lines()
            .filter_map(|line| {
                line.trim()
                    .strip_prefix(&*file)?
                    .strip_prefix(':')?
                    .split_once(": ")
            })
            .map(|(_, finding)| finding)
            .collect();
        for finding in bad.findings() {
            ensure!(
                of_file.contains(finding),
                "{file}: {finding}\nlint: {of_file:#?}"
            );
        }
    }

    let good = Game::in_place(1).pre_delete("later");
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    case.kubectl_with(&apply, &good.to_string()).await?;
    installed.remove(case).await
}

async fn what_was_stored_before_can_still_be_worked_on(case: &mut Case) -> Result<()> {
    case.apply(BAD.replace("probe", "stored")).await?;
    let mismatch = Game::in_place(0).set("/spec/template/spec/containers/0/image", "game:v1 ");
    case.apply(&mismatch).await?;
    let installed = Installed::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    case.kubectl(&["label", "hooktemplate", "stored", "team=red"])
        .await?;
    let policy = json!([{"op": "replace", "path": "/spec/policy", "value": "Ordered"}]);
    case.patch("hooktemplate/stored", policy).await?;
    case.scale(1).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    let worse =
        json!([{"op": "add", "path": "/spec/metrics/0/failureCondition", "value": "a or b"}]);
    let args = [
        "patch",
        "hooktemplate",
        "stored",
        "--type=json",
        &format!("-p={worse}"),
    ];
    let said = case.refused(&args, "").await?;
    ensure!(
        said.contains("spec.metrics[0].failureCondition: "),
        "{said}"
    );
    case.kubectl(&["delete", "hooktemplate", "stored"]).await?;
    installed.remove(case).await
}

async fn a_dead_operator_blocks_nothing_and_a_standby_serves_too(case: &mut Case) -> Result<()> {
    let installed = Installed::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    let mut standby = case.another_operator("standby").await?;
    allow(case, &installed, "standby").await?;
    let other = free_port().await?;
    standby.tell(installed.flags(other, "2160h"));
    standby.start().await?;
    let before = installed.served(case).await?;
    installed.call(case, other).await?;
    case.operator.terminate().await?;
    installed.until_asked(case).await?;
    ensure!(
        installed.served(case).await? == before,
        "the standby made another certificate"
    );

    standby.terminate().await?;
    case.apply(BAD).await?;
    case.apply(&Game::in_place(1)).await?;
    let broken = Game::in_place(1).named("broken").set("/spec/replicas", -1);
    let said = case
        .refused(&["apply", "-f", "-"], &broken.to_string())
        .await?;
    ensure!(said.contains("spec.replicas: Invalid value: -1"), "{said}");
    case.kubectl(&["run", "bystander", "--image=other:v1"])
        .await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    installed.remove(case).await
}

/// Lets another account keep the certificates too.
async fn allow(case: &Case, installed: &Installed, account: &str) -> Result<()> {
    let (name, namespace) = (&installed.name, &case.namespace);
    let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    let role =
        |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let api = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": format!("{name}-{account}"), "namespace": namespace});
    let everywhere = json!({"name": format!("{name}"), "labels": {"of": "test"}});
    let both = json!([
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace},
        {"kind": "ServiceAccount", "name": account, "namespace": namespace},
    ]);
    case.plane()
        .apply(&[
            json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": role("Role"), "subjects": subject}),
            json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": everywhere,
                "roleRef": role("ClusterRole"), "subjects": both}),
        ])
        .await
}

async fn certificates_are_renewed_without_a_gap_or_a_restart(case: &mut Case) -> Result<()> {
    let installed = Installed::of(case, "30s").await?;
    installed.until_asked(case).await?;
    let mut served = BTreeSet::new();
    // Due when a third is left, and served a tenth later.
    throughout(
        "what is served is trusted",
        Duration::from_secs(60),
        async || {
            served.insert(installed.served(case).await?);
            installed.shake_hands(case).await
        },
    )
    .await?;
    let count = served.len();
    ensure!(
        (2..=4).contains(&count),
        "{count} certificates in two lifetimes"
    );
    installed.until_asked(case).await?;
    let log = std::fs::read_to_string(case.operator.log())?;
    let begun = log.matches("due=Begin").count();
    ensure!(begun == 1, "begun {begun} times: {log}");
    installed.remove(case).await
}

async fn a_protected_workload_is_deleted_only_as_its_label_says(case: &mut Case) -> Result<()> {
    let name = format!("protect-{}", case.namespace);
    let name = name[..name.len().min(40)].trim_end_matches('-').to_owned();
    for (policy, label, allowed) in [
        ("Labelled", None, true),
        ("Labelled", Some("Always"), true),
        ("Labelled", Some("Never"), false),
        ("All", None, false),
    ] {
        let value = format!("admission.deletionProtection={policy}");
        let mut objects = rendered(case, &name, &value).await?;
        objects.retain(|it| {
            it["kind"]
                .as_str()
                .is_some_and(|kind| kind.contains("AdmissionPolicy"))
        });
        ensure!(objects.len() == 2, "{} objects", objects.len());
        case.plane().apply(&objects).await?;
        let mut game = Game::in_place(1);
        if let Some(label) = label {
            game = game.set("/metadata/labels/io.tencent.bcs.dev~1deletion-allow", label);
        }
        case.apply(&game).await?;
        let delete = ["delete", "gamedeployment", GAME, "--dry-run=server"];
        eventually(
            "the policy is followed",
            Duration::from_secs(30),
            async || {
                match case.kubectl(&delete).await {
                    Ok(_) => ensure!(allowed, "{policy} {label:?}: deleted"),
                    Err(error) => {
                        let said = format!("{error:#}");
                        ensure!(
                            !allowed && said.contains("must be Always, or Cascading"),
                            "{said}"
                        );
                    }
                }
                Ok(())
            },
        )
        .await?;
        case.kubectl(&[
            "label",
            "gamedeployment",
            GAME,
            "io.tencent.bcs.dev/deletion-allow-",
        ])
        .await?;
    }
    let label = "io.tencent.bcs.dev/deletion-allow=Cascading";
    case.kubectl(&["label", "gamedeployment", GAME, label])
        .await?;
    case.until("a pod is there", |view| view.pods.len() == 1)
        .await?;
    let delete = ["delete", "gamedeployment", GAME];
    let said = case.refused(&delete, "").await?;
    let expected =
        "metadata.labels.io.tencent.bcs.dev/deletion-allow: is Cascading, and there are pods (1)";
    ensure!(said.contains(expected), "{said}");
    case.scale(0).await?;
    case.until_counts([0; 5]).await?;
    case.kubectl(&delete).await?;
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let name = format!("{name}-deletion");
        case.plane().kubectl(&["delete", kind, &name], "").await?;
    }
    Ok(())
}
