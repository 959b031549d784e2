//! Installs the chart's webhook for one test, in the test's namespace and with the test's service account. The API
//! server calls the webhook at the address of the test's operator, which runs outside the cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::case::Case;
use crate::cluster::chart::render;
use crate::cluster::control_plane::ControlPlane;
use crate::cluster::operator::{ACCOUNT, free_port};

/// A HookTemplate that only the webhook refuses.
pub const BAD: &str = "
apiVersion: tkex.tencent.com/v1alpha1
kind: HookTemplate
metadata: {name: probe}
spec:
  metrics:
  - name: players
    successCondition: result contains \"idle\"
    provider: {web: {url: \"http://10.0.0.1\"}}
";

/// The webhook of a test.
pub struct Webhook {
    /// Name of the Secret and of the ValidatingWebhookConfiguration.
    pub name: String,
    /// The address on which the test's operator listens.
    host: IpAddr,
    /// The port on which it listens.
    port: u16,
}

impl Webhook {
    /// Installs the webhook and restarts the operator.
    pub async fn install(case: &mut Case, lifetime: &str) -> Result<Self> {
        Self::install_at(case, Ipv4Addr::LOCALHOST.into(), lifetime).await
    }

    /// Installs the webhook, and starts the operator again, which serves it at this address.
    pub async fn install_at(case: &mut Case, host: IpAddr, lifetime: &str) -> Result<Self> {
        let name = format!("admission-{}", case.namespace);
        let name = name[..name.len().min(52)].trim_end_matches('-').to_owned();
        let port = free_port().await?;
        let objects = rendered(case, &name, "admission.deletionProtection=None").await?;
        let mut kept = objects;
        kept.retain(|object| {
            let is_webhook = object["metadata"]["name"] == format!("{name}-webhook").as_str();
            is_webhook && object["kind"] != "Service"
        });
        ensure!(kept.len() == 7, "{} objects", kept.len());
        case.plane().apply(&kept).await?;
        let name = format!("{name}-webhook");
        let installed = Webhook { name, host, port };
        if case.operator.is_running() {
            case.operator.terminate().await?;
        }
        case.operator.add_args(installed.flags(port, lifetime));
        installed.redirect_calls(case, port).await?;
        installed.redirect_mutating_calls(case, port).await?;
        case.operator.start().await?;
        Ok(installed)
    }

    /// The flags of an operator that serves the webhook on this port.
    pub fn flags(&self, port: u16, lifetime: &str) -> Vec<String> {
        vec![
            format!("--webhook-listen={}", SocketAddr::new(self.host, port)),
            format!("--webhook-name={}", self.name),
            format!("--webhook-certificate-lifetime={lifetime}"),
        ]
    }

    /// Makes the API server call this port to validate objects.
    pub async fn redirect_calls(&self, case: &Case, port: u16) -> Result<()> {
        redirect_calls(case.plane(), &self.name, port).await
    }

    /// Makes the API server call this port to set the defaults of SidecarSets and to inject sidecars. The chart
    /// exempts the namespace that it installs the operator in. Here the operator runs outside the cluster, so the
    /// exception is removed.
    async fn redirect_mutating_calls(&self, case: &Case, port: u16) -> Result<()> {
        let mut patch = Vec::new();
        for (index, path) in ["default", "inject"].into_iter().enumerate() {
            let url = format!("https://localhost:{port}/{path}");
            let client = format!("/webhooks/{index}/clientConfig");
            let timeout = format!("/webhooks/{index}/timeoutSeconds");
            patch.extend([
                json!({"op": "add", "path": format!("{client}/service"), "value": null}),
                json!({"op": "add", "path": format!("{client}/url"), "value": url}),
                json!({"op": "replace", "path": timeout, "value": 30}),
            ]);
        }
        let exception = "/webhooks/1/namespaceSelector/matchExpressions/1";
        patch.push(json!({"op": "remove", "path": exception}));
        let path = mutating_configuration_path(&self.name);
        case.plane().patch(&path, &json!(patch)).await?;
        Ok(())
    }

    /// Makes the API server call a port on which nothing listens, to inject sidecars.
    pub async fn redirect_injection_to_closed_port(&self, case: &Case) -> Result<()> {
        let port = free_port().await?;
        let url = format!("https://localhost:{port}/inject");
        let patch = json!([{"op": "add", "path": "/webhooks/1/clientConfig/url", "value": url}]);
        case.plane().patch(&mutating_configuration_path(&self.name), &patch).await?;
        Ok(())
    }

    async fn configuration(&self, case: &Case) -> Result<Value> {
        case.plane().get(&configuration_path(&self.name)).await
    }

    /// The current serving certificate.
    pub async fn served_certificate(&self, case: &Case) -> Result<String> {
        let secret = case.get(&format!("secrets/{}", self.name)).await?;
        let served = secret["data"]["tls.crt"].as_str();
        Ok(served.context("no certificate")?.to_owned())
    }

    /// Performs a TLS handshake as the API server does, trusting the CAs of the configuration.
    pub async fn tls_handshake(&self, case: &Case) -> Result<()> {
        let configuration = self.configuration(case).await?;
        let service = format!("{}.{}.svc", self.name, case.namespace);
        for host in ["localhost", &service] {
            handshake(&configuration, SocketAddr::new(self.host, self.port), host).await?;
        }
        Ok(())
    }

    /// Waits until the API server calls the webhook.
    pub async fn until_called(&self, case: &Case) -> Result<()> {
        case.eventually("the webhook is called", async || ensure_refused(case).await).await
    }

    /// Removes the cluster-scoped objects of the webhook.
    pub async fn remove(&self, case: &Case) -> Result<()> {
        for kind in [
            "validatingwebhookconfiguration",
            "mutatingwebhookconfiguration",
            "clusterrolebinding",
            "clusterrole",
        ] {
            case.plane().kubectl(&["delete", kind, &self.name], "").await?;
        }
        Ok(())
    }
}

/// The path of a ValidatingWebhookConfiguration.
pub fn configuration_path(name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}")
}

fn mutating_configuration_path(name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}")
}

/// Makes the API server call a port of this machine, instead of a Service, to validate objects.
pub async fn redirect_calls(plane: &ControlPlane, name: &str, port: u16) -> Result<()> {
    let url = format!("https://localhost:{port}/validate");
    let patch = json!([
        // `add` replaces an existing value.
        {"op": "add", "path": "/webhooks/0/clientConfig/service", "value": null},
        {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": url},
        // Under load, a response may be late. The webhook fails open, so a timeout would be an approval.
        {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30},
    ]);
    plane.patch(&configuration_path(name), &patch).await?;
    Ok(())
}

/// Performs a TLS handshake with a port under this host name, trusting the CAs of a webhook configuration.
pub async fn tls_handshake(configuration: &Value, port: u16, host: &str) -> Result<()> {
    handshake(configuration, (Ipv4Addr::LOCALHOST, port).into(), host).await
}

async fn handshake(configuration: &Value, address: SocketAddr, host: &str) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(host.to_owned())?;
    let connected = trusting(configuration)?.connect(name, stream).await;
    let context = || format!("the served certificate is not trusted for {host}");
    connected.with_context(context)?;
    Ok(())
}

/// A TLS connector that trusts the CAs of a webhook configuration.
pub fn trusting(configuration: &Value) -> Result<TlsConnector> {
    let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
    let bundle: ByteString = serde_json::from_value(bundle.clone())?;
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&bundle.0) {
        roots.add(authority?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The chart, rendered with this value (`KEY=VALUE`) for a test's namespace and service account.
pub async fn rendered(case: &Case, name: &str, value: &str) -> Result<Vec<Value>> {
    let override_ = format!("fullnameOverride={name}");
    let scope = format!("watchNamespace={}", case.namespace);
    let set = ["--set", &override_, "--set", value, "--set", &scope];
    let objects = render(&case.plane().helm, &set).await?;
    let account = format!("system:serviceaccount:gamekeeper-system:{name}");
    let user = format!("system:serviceaccount:{}:{ACCOUNT}", case.namespace);
    let moved = objects.into_iter().map(|mut object| {
        if object["subjects"].is_array() {
            object["subjects"][0]["name"] = json!(ACCOUNT);
        }
        let text = object.to_string().replace(&account, &user);
        let text = text.replace("\"gamekeeper-system\"", &format!("\"{}\"", case.namespace));
        Ok(serde_json::from_str(&text)?)
    });
    moved.collect()
}

/// Fails unless the webhook refuses a template that the CRD accepts.
pub async fn ensure_refused(case: &Case) -> Result<()> {
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    let error = case.refused(&apply, BAD).await?;
    let expected = "The HookTemplate \"probe\" is invalid: spec.metrics[0].successCondition: ";
    ensure!(error.contains(expected), "{error}");
    Ok(())
}
