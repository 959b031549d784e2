//! The sidecars of a pod, according to the marks that SidecarSets leave on it.

use gamekeeper_core::observed::{SidecarMark, sidecar_marks};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::age::span;

/// Whether a set lets the pod's workload update the pod's sidecars, and the workload has not begun this update.
pub fn has_token(pod: &Pod) -> bool {
    let marks = sidecar_marks(pod.annotations());
    marks.values().any(|mark| mark.token.is_some())
}

/// The information about a pod, followed by the sidecars that wait for an update, and by those that the pod lacks.
pub fn info_with_sidecars(info: String, pod: &Pod, now: Timestamp) -> String {
    let marks = sidecar_marks(pod.annotations());
    let tokens = marks.iter().filter_map(|(set, mark)| {
        let age = token_age(mark, now)?;
        Some(format!("sidecars of {set} awaiting an update{age}"))
    });
    let left_out = marks.iter().filter_map(|(set, mark)| {
        let why = mark.left_out.as_ref()?;
        Some(format!("without the sidecars of {set}: {why}"))
    });
    let words: Vec<String> = [info].into_iter().chain(tokens).chain(left_out).collect();
    words.join(", ")
}

/// What a set has done with a pod, and what it is about to do. `is_older`: the pod was created before the set.
pub fn describe_mark(
    mark: Option<&SidecarMark>,
    latest: &str,
    is_older: bool,
    now: Timestamp,
) -> String {
    let Some(mark) = mark else {
        return match is_older {
            true => "not injected: the pod is older than the set".to_owned(),
            false => "not injected".to_owned(),
        };
    };
    if let Some(why) = &mark.left_out {
        return format!("left out: {why}");
    }
    let newest = match mark.revision == latest {
        true => " (newest)",
        false => "",
    };
    let token = token_age(mark, now).map(|age| {
        let other = mark.token.as_ref().filter(|token| *token != latest);
        let other = other.map(|token| format!(" (to {token})"));
        format!(", has held a token{}{age}", other.unwrap_or_default())
    });
    let token = token.unwrap_or_default();
    format!("at {}{newest}{token}", mark.revision)
}

/// How long a pod has had its token, if it has one.
fn token_age(mark: &SidecarMark, now: Timestamp) -> Option<String> {
    mark.token.as_ref()?;
    let since = mark.token_since;
    let since = since.map(|since| format!(" for {}", span(now.duration_since(since).as_secs())));
    Some(since.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use gamekeeper_core::observed::mark_key;
    use serde_json::json;

    use super::*;
    use crate::fixture::now;

    const TOKEN: &str =
        r#"{"at":"log-1","in":["log"],"to":"log-2","since":"2026-11-21T10:04:48Z"}"#;
    const CLASH: &str =
        r#"{"at":"mesh-1","out":"the pod has another container \"mesh\"; rename one of the two"}"#;

    fn pod(marks: &[(&str, &str)]) -> Pod {
        let marks = marks.iter().map(|(set, mark)| (mark_key(set), *mark));
        let annotations: serde_json::Map<_, _> =
            marks.map(|(key, mark)| (key, json!(mark))).collect();
        let pod = json!({"metadata": {"name": "a", "annotations": annotations}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn mark(text: &str) -> SidecarMark {
        serde_json::from_str(text).expect("a mark")
    }

    #[test]
    fn a_pod_shows_which_sidecars_await_an_update_and_which_ones_it_lacks() {
        let both = pod(&[("log", TOKEN), ("mesh", CLASH)]);
        assert_eq!(
            info_with_sidecars("2/2 ready".to_owned(), &both, now()),
            "2/2 ready, sidecars of log awaiting an update for 12s, without the sidecars of mesh: the pod has another \
             container \"mesh\"; rename one of the two"
        );
        assert!(has_token(&both));
        // After a token is withdrawn, the time at which it was given remains.
        let withdrawn =
            pod(&[("log", r#"{"at":"log-1","in":["log"],"since":"2026-11-21T10:04:48Z"}"#)]);
        assert_eq!(info_with_sidecars("2/2 ready".to_owned(), &withdrawn, now()), "2/2 ready");
        assert!(!has_token(&withdrawn));
    }

    #[test]
    fn a_mark_shows_what_its_set_did_with_a_pod() {
        let shown = |text: &str| describe_mark(Some(&mark(text)), "log-2", false, now());
        assert_eq!(shown(TOKEN), "at log-1, has held a token for 12s");
        assert_eq!(
            describe_mark(Some(&mark(TOKEN)), "log-3", false, now()),
            "at log-1, has held a token (to log-2) for 12s"
        );
        assert_eq!(shown(r#"{"at":"log-2","in":["log"]}"#), "at log-2 (newest)");
        assert_eq!(shown(r#"{"at":"log-1","in":["log"]}"#), "at log-1");
        assert_eq!(
            shown(CLASH),
            "left out: the pod has another container \"mesh\"; rename one of the two"
        );
        assert_eq!(
            describe_mark(None, "log-2", true, now()),
            "not injected: the pod is older than the set"
        );
        assert_eq!(describe_mark(None, "log-2", false, now()), "not injected");
    }
}
