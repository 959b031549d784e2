//! An API of external metrics, as a metrics adapter serves it, for the HorizontalPodAutoscalers of
//! kube-controller-manager. The API server calls it through an APIService and a Service of type ExternalName.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::authority::{TlsListener, acceptor};
use crate::case::Case;

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// The name of the APIService.
const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";

/// The API. There can be one in a control plane. It stops when dropped, but must be unregistered before that.
pub struct MetricsApi {
    port: u16,
    values: Values,
    task: JoinHandle<()>,
}

/// The value of each metric, and how often it was read since it was set.
type Values = Arc<Mutex<HashMap<String, (i64, usize)>>>;

impl MetricsApi {
    /// Starts the API and registers it.
    pub async fn register(case: &Case) -> Result<Self> {
        let (tls, _) = acceptor(&["http/1.1"])?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = tcp.local_addr()?.port();
        let values = Values::default();
        let group = format!("/apis/{GROUP}/{VERSION}");
        let router = Router::new()
            .route(&group, get(resources))
            .route(&format!("{group}/namespaces/{{namespace}}/{{metric}}"), get(value))
            .with_state(values.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(TlsListener { tcp, tls }, router).await {
                eprintln!("metrics API: {error}");
            }
        });
        let api = Self { port, values, task };
        case.apply(api.objects(&case.namespace)).await?;
        let available = format!("apiservice/{API_SERVICE}");
        let wait = ["wait", "--for=condition=Available", "--timeout=300s", &available];
        case.kubectl(&wait).await?;
        Ok(api)
    }

    /// Unregisters the API. An APIService without a server would keep namespaces from being deleted.
    pub async fn unregister(self, case: &Case) -> Result<()> {
        case.kubectl(&["delete", "apiservice", API_SERVICE]).await?;
        Ok(())
    }

    fn objects(&self, namespace: &str) -> Value {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "metrics", "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        });
        let api_service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": GROUP, "version": VERSION,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"namespace": namespace, "name": "metrics", "port": self.port},
            },
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [service, api_service]})
    }

    /// Sets a metric.
    pub fn set(&self, metric: &str, value: i64) {
        lock(&self.values).insert(metric.to_owned(), (value, 0));
    }

    /// How often a metric was read since it was set.
    pub fn reads(&self, metric: &str) -> usize {
        lock(&self.values).get(metric).map_or(0, |(_, reads)| *reads)
    }
}

impl Drop for MetricsApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(values: &Values) -> std::sync::MutexGuard<'_, HashMap<String, (i64, usize)>> {
    values.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn resources() -> Json<Value> {
    Json(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [],
    }))
}

async fn value(
    State(values): State<Values>,
    Path((_, metric)): Path<(String, String)>,
) -> Json<Value> {
    let found = lock(&values).get_mut(&metric).map(|(value, reads)| {
        *reads += 1;
        *value
    });
    let item = |value: i64| {
        json!({
            "metricName": metric, "metricLabels": {}, "timestamp": Timestamp::now().to_string(),
            "value": value.to_string(),
        })
    };
    let items: Vec<Value> = found.map(item).into_iter().collect();
    Json(json!({
        "kind": "ExternalMetricValueList", "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {}, "items": items,
    }))
}
