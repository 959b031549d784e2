//! The files that a failed test leaves for debugging.

use std::fs::File;
use std::io::Write;

use crate::case::Case;

/// Writes objects, events and the namespace's writes next to the operator's log. If something cannot be
/// collected, its file contains the error.
pub async fn collect(case: &Case, error: &str) {
    let folder = case.folder();
    let save = |name: &str, text: &str| {
        if let Err(error) = std::fs::write(folder.join(name), text) {
            eprintln!("{name}: {error}");
        }
    };
    save("error.txt", error);
    let kinds =
        "gamedeployments,gamestatefulsets,hooktemplates,hookruns,jobs,pods,controllerrevisions";
    let objects = case.kubectl(&["get", kinds, "-o", "yaml"]).await;
    save(
        "objects.yaml",
        &objects.unwrap_or_else(|error| format!("{error:#}")),
    );
    let events = ["get", "events", "--sort-by=.lastTimestamp"];
    let events = case.kubectl(&events).await;
    save(
        "events.txt",
        &events.unwrap_or_else(|error| format!("{error:#}")),
    );
    if let Err(error) = save_writes(case) {
        save("writes.txt", &format!("{error:#}"));
    }
}

/// Saves a summary of all writes in the namespace, in order.
fn save_writes(case: &Case) -> anyhow::Result<()> {
    let events = case.plane().audit.writes(&case.namespace)?;
    let mut file = File::create(case.folder().join("writes.txt"))?;
    for event in events {
        let object = event.object_ref.clone().unwrap_or_default();
        let body = event.request_object.as_ref().map(ToString::to_string);
        let body: String = body.unwrap_or_default().chars().take(600).collect();
        writeln!(
            file,
            "{} {} {} {}/{} {} {} {body}",
            event.received,
            event.user.username,
            event.verb,
            object.resource,
            object.subresource,
            object.name,
            event.code()
        )?;
    }
    Ok(())
}
