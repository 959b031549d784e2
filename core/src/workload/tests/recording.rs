//! Replays what a real kubelet reported (data/in-place-sequences.txt), and compares the rule for completion with what
//! really ran. The rule must never consider a change complete too early, and never miss a completed change, whether or
//! not the first status of each generation was observed.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::story::story;
use crate::api::ContainerOrder;
use crate::api::SidecarSet;
use crate::observed::{
    Container, ContainerStatus, FirstStatus, InPlaceRecord, Pod, Resize, RevisionName,
};
use crate::sidecar_set::{Changing, Sidecars};
use crate::workload::in_place::{Completion, InPlaceChange, Patching, completion, patch_of};
use crate::workload::{progress_in_other_pod, record_of_other_pod};

const RECORDING: &str = include_str!("data/in-place-sequences.txt");

/// One watch event.
#[derive(Clone)]
struct Event {
    at: Timestamp,
    generation: i64,
    observed: i64,
    /// The image of container 0 in the spec. The recording does not show the spec of other containers.
    spec: String,
    containers: Vec<ContainerStatus>,
}

/// How the rule judges the changes that the spec column of the recording shows. That column does not show the resize,
/// nor changes to the sidecar and to a second container.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    /// Changes that the kubelet completed.
    finished: usize,
    /// Changes that the rule considered complete too early.
    too_early: usize,
    /// Completed changes that the rule never considered complete.
    missed: usize,
}

fn time(text: &str) -> Timestamp {
    let (minutes, seconds) = text.split_once(':').expect("mm:ss");
    let minutes: i64 = minutes.parse().expect("minutes");
    let seconds: f64 = seconds.parse().expect("seconds");
    Timestamp::UNIX_EPOCH
        .checked_add(
            SignedDuration::from_secs(minutes * 60) + SignedDuration::from_secs_f64(seconds),
        )
        .expect("time")
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

fn container(text: &str) -> ContainerStatus {
    ContainerStatus {
        image: field(text, "img").to_owned(),
        image_id: field(text, "id").to_owned(),
        container_id: field(text, "cid").to_owned(),
        restart_count: field(text, "rc").parse().expect("restarts"),
        ready: text.split(' ').any(|word| word == "ready"),
        running: text.contains(" running@"),
        started_at: text.split(' ').find_map(|word| word.strip_prefix("running@")).map(time),
        resources_applied: true,
    }
}

fn sequences() -> Vec<(String, Vec<Event>)> {
    let mut sequences: Vec<(String, Vec<Event>)> = Vec::new();
    for line in RECORDING.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            sequences.push((name.to_owned(), Vec::new()));
        }
        if !line.contains(" rv=") {
            continue;
        }
        let (at, rest) = line.split_once(' ').expect("event");
        let (generation, observed) = field(rest, "gen").split_once('/').expect("generations");
        let event = Event {
            at: time(at),
            generation: generation.parse().expect("generation"),
            observed: observed.parse().expect("generation"),
            spec: field(rest, "spec").to_owned(),
            containers: rest.split(" || ").map(container).collect(),
        };
        sequences.last_mut().expect("a sequence").1.push(event);
    }
    sequences
}

/// The first six digits of an image's digest. The recorded imageIDs end with them.
fn content(image: &str) -> &str {
    match image {
        "game:v1" => "bb91cf",
        "game:v2" | "game:v2-retag" | "game:a2" | "mirror/game:v2" => "3e4519",
        "game:v3" => "937620",
        "game:v4-slow8" => "f07ac4",
        "game:v5-slow8" => "00a283",
        "game:v6-slow8" => "81ad43",
        "game:v7-slow8" => "1b88f0",
        "game:v8-slow8" => "f2d9c7",
        "game:crash" => "bfea88",
        "game:nope" => "nothing",
        "loaded/game:v1" | "registry/loaded/game:v1" => "0b5467",
        "loaded/game:v2" | "loaded/game:v2-retag" | "loaded/mirror:v2" => "dc703a",
        digest => digest.rsplit(':').next().map_or("", |digest| &digest[..6]),
    }
}

fn pod_of(event: &Event, before: Option<&Pod>, knows_first_status: bool) -> Pod {
    let mut pod = match before {
        Some(pod) => pod.clone(),
        None => {
            let mut story = story(1, serde_json::json!({}));
            story.settle();
            story.pods()[0].clone()
        }
    };
    let statuses = event.containers.iter().enumerate();
    let containers = statuses.map(|(index, status)| Container {
        name: format!("container-{index}"),
        index,
        init: false,
        image: if index == 0 { event.spec.clone() } else { status.image.clone() },
        resources: "{}".into(),
        status: Some(status.clone()),
    });
    let is_first = pod.observed_generation < event.generation && event.observed == event.generation;
    if is_first || pod.generation != event.generation {
        let container_ids = event.containers.iter().map(|it| it.container_id.clone()).collect();
        pod.first_status = (is_first && knows_first_status)
            .then_some(FirstStatus { generation: event.generation, container_ids });
    }
    pod.containers = containers.collect();
    pod.generation = event.generation;
    pod.observed_generation = event.observed;
    pod.resize = Resize::Settled;
    pod
}

/// Whether a change is truly complete at an event: the desired content runs and is ready. If the change only gave the
/// same content another name, the content must also run in a new container.
fn is_truly_done(event: &Event, before: &Event) -> bool {
    let status = &event.containers[0];
    let same_content = content(&event.spec) == content(&before.spec);
    let restarted = status.container_id != before.containers[0].container_id;
    status.ready
        && event.observed == event.generation
        && status.image_id.ends_with(content(&event.spec))
        && (!same_content || restarted)
}

/// Who makes the changes. This decides how they are recorded, and when they are considered complete.
#[derive(Clone, Copy)]
enum Author {
    /// The workload of the pod.
    Workload,
    /// A SidecarSet, in a pod of another controller. Completion is not recorded.
    SidecarSet,
}

impl Author {
    fn record(self, pod: &Pod, image: &str, at: Timestamp) -> InPlaceRecord {
        let wanted = InPlaceChange {
            images: vec![("container-0".to_owned(), image.to_owned())],
            ..InPlaceChange::default()
        };
        let patching = Patching::InPlace(ContainerOrder::DisOrdered);
        match self {
            Author::Workload => {
                patch_of(pod, RevisionName::of("new"), &wanted, at, patching).record
            }
            Author::SidecarSet => record_of_other_pod(pod, &sidecar_set(image), at),
        }
    }

    fn considers_done(self, pod: &Pod, record: &InPlaceRecord, now: Timestamp) -> bool {
        match self {
            Author::Workload => completion(pod, record, now) == Completion::Done,
            Author::SidecarSet => progress_in_other_pod(pod, "set", now).0 == Changing::No,
        }
    }
}

/// A SidecarSet whose only container has this image.
fn sidecar_set(image: &str) -> Sidecars {
    let set = serde_json::json!({
        "metadata": {"name": "set"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "container-0", "image": image}],
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Sidecars::of(&set).expect("a selector")
}

fn score(sequence: &[Event], author: Author, knows_first_status: bool, total: &mut Score) {
    let mut pod = pod_of(&sequence[0], None, knows_first_status);
    let mut start = 0;
    while let Some(change) =
        (start + 1..sequence.len()).find(|i| sequence[*i].spec != sequence[*i - 1].spec)
    {
        let end = (change + 1..sequence.len())
            .find(|i| sequence[*i].generation != sequence[*i - 1].generation);
        let before = &sequence[change - 1];
        for event in &sequence[start + 1..change] {
            pod = pod_of(event, Some(&pod), knows_first_status);
        }
        let (image, at) = (&sequence[change].spec, sequence[change].at);
        let record = author.record(&pod, image, at);
        pod.record = Some(Arc::new(record));
        let (mut truly_done, mut judged_done) = (false, false);
        let last = end.unwrap_or(sequence.len());
        for (index, event) in sequence.iter().enumerate().take(last).skip(change) {
            pod = pod_of(event, Some(&pod), knows_first_status);
            truly_done = is_truly_done(event, before);
            let half_hour = SignedDuration::from_mins(30);
            let next_at = sequence
                .get(index + 1)
                .map_or_else(|| event.at.checked_add(half_hour).expect("time"), |it| it.at);
            for now in [event.at, next_at] {
                let record = pod.record.clone().expect("record");
                if author.considers_done(&pod, &record, now) && !judged_done {
                    judged_done = true;
                    total.too_early += usize::from(!truly_done);
                    pod.record = Some(Arc::new(InPlaceRecord {
                        done: matches!(author, Author::Workload),
                        ..(*record).clone()
                    }));
                }
            }
        }
        total.finished += usize::from(truly_done);
        // Without the first status, a new container is assumed to have the new image only once it has run for a
        // while. If the next change follows immediately, there is no time for that.
        let had_time = knows_first_status || end.is_none();
        total.missed += usize::from(truly_done && !judged_done && had_time);
        start = change;
    }
}

fn replay(author: Author, knows_first_status: bool) -> Score {
    let mut total = Score::default();
    for (name, sequence) in sequences() {
        if name.starts_with("resize") || name.starts_with("sidecar") {
            continue;
        }
        score(&sequence, author, knows_first_status, &mut total);
    }
    total
}

#[test]
fn the_rule_is_never_early_and_misses_no_change_that_a_real_kubelet_completed() {
    for author in [Author::Workload, Author::SidecarSet] {
        let score = replay(author, true);
        assert_eq!((score.too_early, score.missed), (0, 0), "{score:?}");
        assert_eq!(score.finished, 27);
    }
}

#[test]
fn the_rule_holds_without_the_first_status_too() {
    for author in [Author::Workload, Author::SidecarSet] {
        let score = replay(author, false);
        assert_eq!((score.too_early, score.missed), (0, 0), "{score:?}");
        assert_eq!(score.finished, 27);
    }
}

/// Before Kubernetes 1.34, kubelets do not report which generation they have observed.
#[test]
fn a_pod_of_another_controller_counts_as_changing_during_a_slow_pull_on_an_old_kubelet() {
    let sequences = sequences();
    let (_, slow) = sequences.iter().find(|(name, _)| name == "slow").expect("the sequence");
    let without_generation = |event: &Event| Event { observed: 0, ..event.clone() };
    let slow: Vec<Event> = slow.iter().map(without_generation).collect();
    let mut pod = pod_of(&slow[0], None, false);
    let changed = &slow[1];
    let wanted = sidecar_set(&changed.spec);
    pod.record = Some(Arc::new(record_of_other_pod(&pod, &wanted, changed.at)));
    for event in &slow[1..] {
        pod = pod_of(event, Some(&pod), false);
        let status = &event.containers[0];
        let is_new = status.image == event.spec && status.ready;
        let expected = match is_new {
            true => Changing::No,
            false => Changing::Sidecars,
        };
        let (changing, _) = progress_in_other_pod(&pod, "set", event.at);
        assert_eq!(changing, expected, "{status:?}");
    }
}
