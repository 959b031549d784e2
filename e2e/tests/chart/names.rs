//! The names and namespaces of what the chart renders are valid in every release.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::cluster::chart::render_as;
use judge::object::text;
use serde_json::Value;

/// Values that together render all objects of the chart. Lifecycle hooks cannot be combined with watchNamespace.
const ALL_OBJECTS: [&str; 2] = [
    "bootstrapHooks.configMap=b,bootstrapHooks.image=b,lifecycleHooks.enabled=true,metrics.alerts.enabled=true,\
    metrics.dashboards.enabled=true,metrics.serviceMonitor.enabled=true,guardedPods.priorityClass.create=true",
    "watchNamespace=games,hooks.exec={games},hooks.secrets[0].namespace=games,hooks.secrets[0].names={b}",
];

#[e2e::test]
async fn names_are_valid_in_every_release(case: &mut Case) -> Result<()> {
    for release in ["a-release-with-the-longest-name-that-helm-accepts-123", "games.example.com"] {
        for values in ALL_OBJECTS {
            let options = ["--set", values];
            let plane = case.plane();
            let installed = plane.render_installed(release, "elsewhere", &options).await?;
            let rendered = render_as(&plane.helm, release, "elsewhere", &options).await?;
            for object in installed.iter().chain(&rendered) {
                let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
                ensure!(is_valid(kind, name), "{kind} {name}: {} characters", name.len());
            }
        }
    }
    Ok(())
}

/// Whether the API server accepts this name for an object of this kind.
fn is_valid(kind: &str, name: &str) -> bool {
    let is_label = |part: &str| {
        let is_allowed = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        let has_dash_at_end = part.starts_with('-') || part.ends_with('-');
        !part.is_empty() && !has_dash_at_end && part.chars().all(is_allowed)
    };
    match kind {
        // A Job's name is also the value of a label of its pods.
        "CronJob" => name.len() <= 52 && is_label(name),
        "Job" | "Namespace" | "Service" => name.len() <= 63 && is_label(name),
        _ => name.len() <= 253 && name.split('.').all(is_label),
    }
}

#[e2e::test]
async fn a_namespace_may_look_like_a_number(case: &mut Case) -> Result<()> {
    let options = [
        "--set-string=watchNamespace=100234,hooks.exec={100234}",
        "--set-string=hooks.secrets[0].namespace=100234,hooks.secrets[0].names={b}",
    ];
    let objects = render_as(&case.plane().helm, "tenant", "elsewhere", &options).await?;
    for object in &objects {
        ensure!(!has_number(object, 100_234), "{object:#}");
    }
    Ok(())
}

/// Whether a number occurs anywhere in a value.
pub(super) fn has_number(value: &Value, number: u64) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|it| has_number(it, number)),
        Value::Object(fields) => fields.values().any(|it| has_number(it, number)),
        other => other.as_u64() == Some(number),
    }
}
