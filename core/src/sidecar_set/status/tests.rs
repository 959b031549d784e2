//! What condition Progressing shows, as a table.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::api::SidecarSet;

fn set(strategy: Value) -> Sidecars {
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": "log:1"}],
            "updateStrategy": strategy,
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Sidecars::of(&set).expect("a selector")
}

/// One of four pods has the newest containers.
fn started() -> Progress {
    Progress { matched: 4, updated: 1, ..Progress::default() }
}

fn pods(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("games/{name}")).collect()
}

#[test]
fn progressing_shows_what_the_update_waits_for() {
    let held = || BTreeSet::from(["GameDeployment games/arena is paused".to_owned()]);
    let rolling = || json!({});
    for (strategy, progress, status, words) in [
        (
            json!({"type": "NotUpdate"}),
            started(),
            "false NotUpdate",
            "spec.updateStrategy.type is NotUpdate",
        ),
        (
            json!({"type": "NotUpdate"}),
            Progress { updated: 4, ..started() },
            "true Complete",
            "4 of 4 pods",
        ),
        (json!({"paused": true}), started(), "false Paused", "spec.updateStrategy.paused"),
        (
            rolling(),
            Progress { wanted: 3, waiting: pods(&["a"]), held: held(), ..started() },
            "false WaitsForWorkload",
            "wait for their hook, or for their workload's maxUnavailable: games/a",
        ),
        (
            rolling(),
            Progress { wanted: 1, held: held(), ..started() },
            "true Updating",
            "1 of 4 pods",
        ),
        (
            rolling(),
            Progress { held: held(), ignored: pods(&["a"]), ..started() },
            "false WaitsForWorkload",
            "1 of 4 pods have the newest containers; the others wait: GameDeployment games/arena is paused",
        ),
        (
            rolling(),
            Progress { not_in_place: pods(&["a"]), ..started() },
            "false NotInPlace",
            "fields other than images differ, and cannot be changed in running pods; recreate: games/a",
        ),
        (
            rolling(),
            Progress { hot_patched: pods(&["a"]), ..started() },
            "false NotInPlace",
            "were hot-patched, so that any change would restart their other containers; recreate: games/a",
        ),
        (
            rolling(),
            Progress { ignored: pods(&["d", "c", "b", "a"]), ..started() },
            "false NotInPlace",
            "kubelets before 1.32 do not update native sidecars; recreate: games/a; games/b; games/c; and 1 more",
        ),
        (json!({"partition": 3}), started(), "true HeldBack", "partition"),
    ] {
        let (holds, reason, message) = progressing(Some(&set(strategy)), &progress);
        assert_eq!(format!("{holds} {reason}"), status, "{message}");
        assert!(message.contains(words), "{message}");
    }
}
