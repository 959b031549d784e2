//! The files that a failed test leaves for debugging.

use crate::case::Case;

/// Saves the namespace's objects and events, and all writes in it, next to the operator's log. If something
/// cannot be collected, its file contains the error.
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
    save("objects.yaml", &objects.unwrap_or_else(|error| format!("{error:#}")));
    let events = ["get", "events", "--sort-by=.lastTimestamp"];
    let events = case.kubectl(&events).await;
    save("events.txt", &events.unwrap_or_else(|error| format!("{error:#}")));
    let writes = case.plane().writes_as_text(&case.namespace);
    save("writes.txt", &writes.unwrap_or_else(|error| format!("{error:#}")));
}
