//! The documentation's stories as golden plans: each line is an action, in the order of the plans, so a diff shows
//! every change in what the operator does.

use std::fmt::Write as _;

use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;

use super::story::{Story, story};
use crate::api::HookPhase;
use crate::workload::Planned;
use crate::write::{Action, PodRef};

/// Describes an action, without details that differ from pod to pod.
fn line(action: &Action) -> String {
    let pod = |pod: &PodRef| match pod.version {
        Some(_) => "an unchanged pod",
        None => "a pod",
    };
    match action {
        Action::PatchWorkload(patch) => {
            let annotations = patch.annotations.iter();
            let annotations: Vec<String> = annotations
                .map(|(key, value)| match value {
                    Some(_) => format!("sets {key}"),
                    None => format!("removes {key}"),
                })
                .collect();
            let paused = patch.paused.map(|paused| format!("paused: {paused}"));
            let retry_off = patch.retry_off.iter().map(|it| format!("{it:?}.retry: false"));
            let parts = paused.into_iter().chain(retry_off).chain(annotations);
            format!("patch the workload: {}", parts.collect::<Vec<_>>().join(", "))
        }
        Action::CreateRevision(revision) => format!("create revision {}", revision.number),
        Action::RenumberRevision { number, .. } => format!("renumber a revision to {number}"),
        Action::DeleteRevision { .. } => "delete a revision".to_owned(),
        Action::AdoptRevision { .. } => "adopt a revision".to_owned(),
        Action::AdoptPod(it) => format!("adopt {}", pod(it)),
        Action::ReleasePod(it) => format!("release {}", pod(it)),
        Action::DryRun { .. } => "dry-run a pod".to_owned(),
        Action::CreatePod(it) => format!("create a pod of {}", image(&it.pod.parse())),
        Action::DeletePod(it) => format!("delete {} ({:?})", pod(&it.pod), it.reason),
        Action::ForceDeletePod(it) => format!("force the deletion of {}", pod(it)),
        Action::GuardPod { pod: it, .. } | Action::LabelPod { pod: it, .. } => {
            format!("label {}", pod(it))
        }
        Action::CreateClaim(_) => "create a claim".to_owned(),
        Action::OwnClaim(it) if it.add.is_some() => "add an owner to a claim".to_owned(),
        Action::OwnClaim(_) => "remove an owner from a claim".to_owned(),
        Action::RequestMove { pod: it, .. } => format!("mark {} for a move", pod(it)),
        Action::MarkDeleting { pod: it, .. } => format!("mark {} for deletion", pod(it)),
        Action::UnmarkDeleting(it) => format!("unmark {}", pod(it)),
        Action::CreateHookRun(run) => format!("create HookRun of {}", first_word(&run.name_any())),
        Action::DeleteHookRun { name, .. } => format!("delete HookRun of {}", first_word(name)),
        Action::CloseGate { pod: it, then, .. } => match then {
            Some(_) => format!("close the gate of {}, then change it", pod(it)),
            None => format!("close the gate of {}", pod(it)),
        },
        Action::OpenGate(it) => format!("open the gate of {}", pod(it)),
        Action::PatchInPlace(it) => {
            let images: Vec<&str> = it.images.iter().map(|image| image.to.as_str()).collect();
            format!("change {} to {}", pod(&it.pod), images.join(", "))
        }
        Action::ResizePod { pod: it, .. } => format!("resize {}", pod(it)),
        Action::FinishInPlace { pod: it, .. } => format!("finish the update of {}", pod(it)),
        Action::ApplyBudget(_) => "apply the budget".to_owned(),
        Action::ProbeGuard { .. } => "check whether the guard is in force".to_owned(),
        Action::DeleteBudget { .. } => "delete the budget".to_owned(),
    }
}

fn image(pod: &serde_json::Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// The first word of a HookRun's name, which begins with its hook point: `pre`, `post` or `canary`.
fn first_word(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// A story, and its text: a heading for each thing that happens, and the actions that follow from it.
struct Golden<K> {
    story: Story<K>,
    text: String,
}

impl<K: Planned + Serialize> Golden<K> {
    fn new(story: Story<K>) -> Self {
        let text = String::new();
        Self { story, text }
    }

    /// Makes something happen, and reconciles until nothing changes.
    fn when(&mut self, heading: &str, happens: impl FnOnce(&mut Story<K>)) {
        happens(&mut self.story);
        let before = self.story.done.len();
        self.story.settle();
        writeln!(self.text, "# {heading}").expect("text");
        let mut lines: Vec<(String, usize)> = Vec::new();
        for action in &self.story.done[before..] {
            let line = line(action);
            match lines.last_mut() {
                Some((last, count)) if *last == line => *count += 1,
                _ => lines.push((line, 1)),
            }
        }
        for (line, count) in lines {
            writeln!(self.text, "{count} x {line}").expect("text");
        }
        let columns = self.story.columns();
        writeln!(self.text, "desired, updated, updated ready, ready, total: {columns}\n")
            .expect("text");
    }
}

fn resume(story: &mut Story) {
    story.user(json!({"updateStrategy": {"paused": false}}));
}

#[test]
fn the_canary_walkthrough() {
    let steps = json!([
        {"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": 60}},
        {"hook": {"templateName": "test"}},
    ]);
    let mut golden = Golden::new(story(
        4,
        json!({"updateStrategy": {
            "type": "InplaceUpdate", "maxUnavailable": 2, "canary": {"steps": steps},
            "inPlaceUpdateStrategy": {"gracePeriodSeconds": 30},
        }}),
    ));
    golden.when("the workload is created", |_| {});
    golden.when("a new image is applied", |story| {
        story.image("v2");
    });
    golden.when("the grace period is over", |story| {
        story.wait(31);
    });
    golden.when("the user resumes", resume);
    golden.when("the grace period is over", |story| {
        story.wait(31);
    });
    golden.when("the timed pause is over", |story| {
        story.wait(61);
    });
    golden.when("the hook fails", |story| {
        story.hooks_end("", HookPhase::Failed);
    });
    golden.when("the user resumes", resume);
    golden.when("the grace period is over", |story| {
        story.wait(31);
    });
    insta::assert_snapshot!(golden.text);
}

#[test]
fn the_pre_delete_walkthrough() {
    let hook = json!({"hook": {"templateName": "test"}});
    let mut golden = Golden::new(story(2, json!({"preDeleteUpdateStrategy": hook})));
    golden.when("the workload is created", |_| {});
    golden.when("the user scales in", |story| {
        story.user(json!({"replicas": 1}));
    });
    golden.when("the hook fails", |story| {
        story.hooks_end("", HookPhase::Failed);
    });
    golden.when("the user retries", |story| {
        story.user(json!({"preDeleteUpdateStrategy": {"retry": true}}));
    });
    golden.when("the hook passes", |story| {
        story.hooks_end("", HookPhase::Successful);
    });
    insta::assert_snapshot!(golden.text);
}
