//! The documentation's stories as golden plans: each line is a write, in the order of the plans, so a diff shows
//! every change in what the operator does.

use std::fmt::Write as _;

use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;

use super::story::{Story, story};
use crate::api::{HookPhase, names};
use crate::observed::PodRef;
use crate::workload::Planned;
use crate::write::{Change, Owned, Write};

/// Describes a write, without details that differ from pod to pod.
fn line(write: &Write) -> String {
    let pod = |pod: &PodRef| match pod.version {
        Some(_) => "an unchanged pod",
        None => "a pod",
    };
    match write.change() {
        Change::PatchWorkload(patch) => {
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
        Change::CreateRevision(revision) => format!("create revision {}", revision.number),
        Change::RenumberRevision { number, .. } => format!("renumber a revision to {number}"),
        Change::AdoptRevision { .. } => "adopt a revision".to_owned(),
        Change::AdoptPod(it) => format!("adopt {}", pod(it)),
        Change::ReleasePod(it) => format!("release {}", pod(it)),
        Change::DryRun { .. } => "dry-run a pod".to_owned(),
        Change::CreatePod(it) => format!("create a pod of {}", image(&it.pod.parse())),
        Change::DeletePod(it) => format!("delete {} ({:?})", pod(&it.pod), it.reason),
        Change::ForceDeletePod(it) => format!("force the deletion of {}", pod(it)),
        change @ Change::SetMetadata { pod: it, .. } => {
            let marked = change.annotation(names::DELETING_ANNOTATION);
            match marked {
                Some(Some(_)) => format!("mark {} for deletion", pod(it)),
                Some(None) => format!("unmark {}", pod(it)),
                None if change.annotation(names::MOVE_ANNOTATION).is_some() => {
                    format!("mark {} for a move", pod(it))
                }
                None if change.annotation(names::IN_PLACE_RECORD).is_some() => {
                    format!("finish the update of {}", pod(it))
                }
                None => format!("label {}", pod(it)),
            }
        }
        Change::CreateClaim(_) => "create a claim".to_owned(),
        Change::OwnClaim(it) if it.add.is_some() => "add an owner to a claim".to_owned(),
        Change::OwnClaim(_) => "remove an owner from a claim".to_owned(),
        Change::CreateHookRun(run) => format!("create HookRun of {}", first_word(&run.name_any())),
        Change::Delete { kind, name, .. } => match kind {
            Owned::Revision => "delete a revision".to_owned(),
            Owned::HookRun | Owned::Script => format!("delete HookRun of {}", first_word(name)),
            Owned::Budget => "delete the budget".to_owned(),
        },
        Change::SetGate { pod: it, closed_for: Some(_), then } => match then {
            Some(_) => format!("close the gate of {}, then change it", pod(it)),
            None => format!("close the gate of {}", pod(it)),
        },
        Change::SetGate { pod: it, .. } => format!("open the gate of {}", pod(it)),
        Change::PatchInPlace(it) => {
            let images: Vec<&str> = it.images.iter().map(|image| image.to.as_str()).collect();
            format!("change {} to {}", pod(&it.pod), images.join(", "))
        }
        change @ (Change::PatchSidecars(_) | Change::PatchNode(_) | Change::AdmitNode { .. }) => {
            panic!("no plan of a workload makes this write: {change:?}")
        }
        Change::ResizePod { pod: it, .. } => format!("resize {}", pod(it)),
        Change::ApplyBudget(_) => "apply the budget".to_owned(),
        Change::ProbeGuard { .. } => "check whether the guard is in force".to_owned(),
    }
}

fn image(pod: &serde_json::Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// The first word of a HookRun's name, which begins with its hook point: `pre`, `post` or `canary`.
fn first_word(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// A story, and its text: a heading for each thing that happens, and the writes that follow from it.
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
        for write in &self.story.done[before..] {
            let line = line(write);
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
