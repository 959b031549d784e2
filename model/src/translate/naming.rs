//! Converts the model's small numbers to times, images, uids and names in the cluster, and back.

use gamekeeper_core::api::{HookArgument, HookStep, names};
use jiff::{SignedDuration, Timestamp};

use crate::sidecars;
use crate::state::*;

/// The workload's name.
pub(super) const WORKLOAD: &str = "gd";
/// The HookTemplate's name.
pub(super) const TEMPLATE: &str = "check";
/// Names of a pod's containers.
pub(super) const CONTAINERS: [&str; 3] = ["game", "log", sidecars::CONTAINER];

/// The index of a container in the model's pods.
pub fn container_index(name: &str) -> usize {
    CONTAINERS.iter().position(|it| *it == name).expect("a container of the model")
}
/// Seconds per tick of the model's time.
pub(super) const TICK_SECONDS: i64 = 10;

/// The time at which the model starts.
pub(super) fn beginning() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("a time")
}

/// A time of the model as a timestamp.
pub(super) fn timestamp(time: Time) -> Timestamp {
    beginning() + SignedDuration::from_secs(TICK_SECONDS * i64::from(time))
}

/// The time at which a gate was closed, as a timestamp.
pub(super) fn closing_timestamp(closing: Closing) -> Timestamp {
    timestamp(closing.at) + SignedDuration::from_secs(i64::from(closing.nth))
}

/// The inverse of [`closing_timestamp`].
pub(super) fn closing_at(timestamp: Timestamp) -> Closing {
    let seconds = timestamp.duration_since(beginning()).as_secs();
    Closing { at: (seconds / TICK_SECONDS) as Time, nth: (seconds % TICK_SECONDS) as u8 }
}

/// A timestamp as a time of the model, rounded down.
pub fn time_of(timestamp: Timestamp) -> Time {
    (timestamp.duration_since(beginning()).as_secs() / TICK_SECONDS) as Time
}

/// What the operator's clock shows at a time of the model: half a tick after the events of that time.
pub fn clock(time: Time) -> Timestamp {
    timestamp(time) + SignedDuration::from_secs(TICK_SECONDS / 2)
}

/// The first time at which the operator's clock is not before a timestamp.
pub fn wake_time(at: Timestamp) -> Time {
    (0..Time::MAX).find(|time| clock(*time) >= at).unwrap_or(Time::MAX)
}

/// The number after a prefix.
fn number(text: &str, prefix: &str) -> u8 {
    let number = text.strip_prefix(prefix).and_then(|it| it.parse().ok());
    number.unwrap_or_else(|| panic!("{text} is not from the model"))
}

pub(super) fn image(rev: Rev) -> String {
    format!("game:v{rev}")
}

/// The image of a container.
pub fn image_in(container: &str, rev: Rev) -> String {
    match container {
        sidecars::CONTAINER => format!("{container}:v{rev}"),
        _ => image(rev),
    }
}

/// The containers with these bits, as in the annotation of a HookRun.
pub(super) fn changed_containers(bits: u8) -> String {
    let names = CONTAINERS.into_iter().enumerate();
    let names = names.filter(|(index, _)| bits & (1 << index) != 0);
    let mut names: Vec<&str> = names.map(|(_, name)| name).collect();
    names.sort_unstable();
    names.join(",")
}

/// The bits of the containers that the annotation of a HookRun names.
pub(super) fn parse_changes(text: &str) -> u8 {
    let bits = text.split(',').filter(|name| !name.is_empty()).map(|name| {
        let mut names = CONTAINERS.into_iter();
        let index = names.position(|it| it == name);
        1 << index.expect("a container of the model")
    });
    bits.fold(0, |all, bit: u8| all | bit)
}

pub fn rev_of_image(image: &str) -> Rev {
    let tag = image.split_once(':').map_or(image, |(_, tag)| tag);
    number(tag, "v")
}

pub(super) fn pod_uid(uid: Uid) -> String {
    format!("uid-{uid}")
}

pub fn parse_uid(text: &str) -> Uid {
    number(text, "uid-")
}

/// The last part of a pod's name: an ordinal, or an instance ID that is not a number.
pub(super) fn instance(name: Name, is_ordinal: bool) -> String {
    match is_ordinal {
        true => name.to_string(),
        false => format!("p{name:02}"),
    }
}

pub(super) fn parse_instance(instance: &str) -> Name {
    number(instance.trim_start_matches('p'), "")
}

pub(super) fn pod_name(name: Name, is_ordinal: bool) -> String {
    format!("{WORKLOAD}-{}", instance(name, is_ordinal))
}

pub(super) fn parse_name(name: &str) -> Name {
    let instance = name.strip_prefix(WORKLOAD).and_then(|it| it.strip_prefix('-'));
    parse_instance(instance.unwrap_or_else(|| panic!("{name} is not from the model")))
}

pub(super) fn container_id(uid: Uid, restarts: u8) -> String {
    format!("container-{uid}-{restarts}")
}

pub(super) fn run_uid(id: &RunId) -> String {
    format!("{id:?}")
}

/// A version of the hook: the same template with another argument.
pub(super) fn hook_step(version: u8) -> HookStep {
    HookStep {
        template_name: TEMPLATE.to_owned(),
        args: vec![HookArgument { name: "version".to_owned(), value: version.to_string() }],
    }
}

/// The hash of a version of the hook, as in the annotation of a HookRun.
pub(super) fn hook_hash(version: u8) -> String {
    names::safe_hash(&serde_json::to_vec(&hook_step(version)).expect("JSON"))
}
