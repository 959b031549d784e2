//! Helpers for tests of HookRuns.

use anyhow::{Result, ensure};
use e2e::case::Case;
use serde_json::{Value, json};

/// The manifest of a HookRun.
pub fn hook_run(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "HookRun",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// A run with one web metric, `ready`. It calls the hook server at the path `/NAME`, where NAME is the run's name.
/// `fields` are added to the metric.
pub fn web(case: &Case, name: &str, fields: Value) -> Value {
    let path = format!("/{name}");
    let mut metric = json!({
        "name": "ready",
        "provider": {"web": {"url": case.hooks.url(&path), "jsonPath": "{$.age}"}},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        metric[field] = value.clone();
    }
    hook_run(name, json!({"metrics": [metric]}))
}

/// The status of a run.
pub async fn status(case: &Case, run: &str) -> Result<Value> {
    Ok(case.get(&format!("hookruns/{run}")).await?["status"].clone())
}

/// Waits until a run is in a phase, and returns its status.
pub async fn until_phase(case: &Case, run: &str, phase: &str) -> Result<Value> {
    case.eventually(&format!("{run} is {phase}"), async || {
        let status = status(case, run).await?;
        ensure!(status["phase"] == phase, "{status:#}");
        Ok(status)
    })
    .await
}
