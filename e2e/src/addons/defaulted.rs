//! What the API server makes of a pod template or a pod before it validates it: defaults are set, and what means nothing
//! is gone.
//!
//! A mutating webhook sees exactly that, so a template need not be valid: it can have every field at once.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::case::Case;
use crate::servers::authority::{TlsListener, acceptor};

/// The object of the last request.
type Last = Arc<Mutex<Option<Value>>>;

/// The webhook. It sees the objects of one namespace. It stops when dropped, but must be removed before that.
pub struct Defaulted<'a> {
    case: &'a Case,
    last: Last,
    task: JoinHandle<()>,
}

impl<'a> Defaulted<'a> {
    /// Starts the webhook, and waits until the API server calls it.
    pub async fn install(case: &'a Case) -> Result<Self> {
        let (tls, authority) = acceptor(&["http/1.1"])?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = tcp.local_addr()?.port();
        let last = Last::default();
        let router = Router::new().route("/", post(record)).with_state(Arc::clone(&last));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(TlsListener { tcp, tls }, router).await {
                eprintln!("webhook: {error}");
            }
        });
        let installed = Self { case, last, task };
        let webhook = json!({
            "name": "defaulted.gamekeeper.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/"),
                "caBundle": ByteString(authority.into_bytes()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": case.namespace}},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods", "podtemplates"], "scope": "Namespaced",
            }],
        });
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": installed.name()},
            "webhooks": [webhook],
        });
        case.plane().apply(&[configuration]).await?;
        case.eventually("the webhook is called", async || {
            installed.template(&json!({"spec": {}})).await?;
            Ok(())
        })
        .await?;
        Ok(installed)
    }

    fn name(&self) -> String {
        format!("defaulted-{}", self.case.namespace)
    }

    /// The template of a PodTemplate.
    pub async fn template(&self, template: &Value) -> Result<Value> {
        let object = json!({"metadata": {"name": "any"}, "template": template});
        Ok(self.created("podtemplates", &object).await?["template"].take())
    }

    /// The spec of a pod.
    pub async fn pod(&self, spec: &Value) -> Result<Value> {
        let object = json!({"metadata": {"name": "any"}, "spec": spec});
        Ok(self.created("pods", &object).await?["spec"].take())
    }

    async fn created(&self, resource: &str, object: &Value) -> Result<Value> {
        self.take();
        let namespace = &self.case.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/{resource}?dryRun=All");
        let created = self.case.plane().create(&path, object).await;
        let seen = self.take();
        // Whether the object is valid does not matter, but it must have been decoded.
        seen.with_context(|| format!("the webhook was not called: {:?}", created.err()))
    }

    fn take(&self) -> Option<Value> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Removes the webhook.
    pub async fn remove(self) -> Result<()> {
        let kind = "mutatingwebhookconfiguration";
        let deleted = self.case.plane().kubectl(&["delete", kind, &self.name()], "").await?;
        ensure!(deleted.contains("deleted"), "{deleted}");
        Ok(())
    }
}

impl Drop for Defaulted<'_> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn record(State(last): State<Last>, Json(mut review): Json<Value>) -> Json<Value> {
    let object = review["request"]["object"].take();
    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true},
    }))
}
