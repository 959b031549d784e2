//! When a change of a running pod is complete.
//!
//! The status alone can mislead: a kubelet shows the old container as running and ready until the new one runs; a
//! container that crashed in between looks like a new one; a kubelet makes two quick changes one after the other, so
//! that a container with the wrong image is ready in between; and status.image may be any of the node's names for the
//! image. One rule covers all of this, as recordings of a real kubelet show: a change is complete when the status is
//! for the newest generation, the container is ready, and either status.image is the desired image, or the container
//! differs from the one in the first status of that generation. If status.image was already the desired image before
//! the change, a match proves nothing.

use jiff::{SignedDuration, Timestamp};

use crate::observed::{
    Container, ContainerChange, ContainerStatus, InPlaceRecord, Pod, Resize, Turn,
};

/// The progress of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Completion {
    /// Every change has taken effect, and its container is ready.
    Done,
    /// Not complete. It is checked again at this time, even if the pod does not change until then.
    Pending(Option<Timestamp>),
    /// The node refuses or defers the resize.
    Stuck(String),
}

/// If the first status of a generation is unknown, a new container is assumed to have the new image once it has run
/// for this long.
const SETTLING_TIME: SignedDuration = SignedDuration::from_secs(10);
/// The same, for a container that an earlier, superseded change may have started.
const SETTLING_TIME_SUPERSEDED: SignedDuration = SignedDuration::from_mins(5);

/// The progress of a pod's recorded change.
pub(crate) fn completion(pod: &Pod, record: &InPlaceRecord, now: Timestamp) -> Completion {
    // A resize that another client requested does not concern this change.
    let resizes = record.containers.values().any(|it| it.resources.is_some());
    if resizes && let Resize::Deferred(message) | Resize::Infeasible(message) = &pod.resize {
        return Completion::Stuck(message.clone());
    }
    if !is_observed(pod) {
        return Completion::Pending(None);
    }
    let mut wake = None;
    for (index, container) in pod.containers.iter().enumerate() {
        let Some(change) = record.containers.get(&container.name) else {
            continue;
        };
        if matches!(change.turn, Turn::Next(_)) {
            return Completion::Pending(None);
        }
        let Some(status) = container.status.as_ref().filter(|status| status.ready) else {
            return Completion::Pending(None);
        };
        if change.resources.is_some()
            && !(status.resources_applied && pod.resize == Resize::Settled)
        {
            return Completion::Pending(None);
        }
        match runs_new_image(pod, record, index, status, change, now) {
            RunsNewImage::Yes => {}
            RunsNewImage::No => return Completion::Pending(None),
            RunsNewImage::From(at) => wake = wake.max(Some(at)),
        }
    }
    match wake {
        None => Completion::Done,
        at => Completion::Pending(at),
    }
}

/// The container that was restarted and is assumed to run its new image from a later time on, and that time: the last
/// one, if there are several. None if the change waits for something else. The containers whose turn comes later do not
/// matter, unlike in [`completion`].
pub(crate) fn assumed_later<'a>(
    pod: &'a Pod,
    record: &InPlaceRecord,
    now: Timestamp,
) -> Option<(&'a Container, Timestamp)> {
    if !is_observed(pod) {
        return None;
    }
    let mut assumed = Vec::new();
    for (index, container) in pod.containers.iter().enumerate() {
        let change = record.containers.get(&container.name);
        let Some(change) = change.filter(|it| matches!(it.turn, Turn::Set)) else {
            continue;
        };
        let status = container.status.as_ref().filter(|status| status.ready)?;
        match runs_new_image(pod, record, index, status, change, now) {
            RunsNewImage::Yes => {}
            RunsNewImage::From(at) if status.container_id != change.from_container_id => {
                assumed.push((container, at));
            }
            RunsNewImage::No | RunsNewImage::From(_) => return None,
        }
    }
    assumed.into_iter().max_by_key(|(_, at)| *at)
}

/// Whether the kubelet has observed the newest spec. This is assumed if the kubelet does not report it.
pub(super) fn is_observed(pod: &Pod) -> bool {
    pod.observed_generation == 0 || pod.observed_generation == pod.generation
}

/// Whether a container runs the image of its spec.
pub(super) enum RunsNewImage {
    /// It runs that image.
    Yes,
    /// It runs a different image, or this is unknown.
    No,
    /// It is assumed to run that image from this time on.
    From(Timestamp),
}

/// Whether a container that was changed runs the image of its spec, according to a status for the newest generation.
pub(super) fn runs_new_image(
    pod: &Pod,
    record: &InPlaceRecord,
    index: usize,
    status: &ContainerStatus,
    change: &ContainerChange,
    now: Timestamp,
) -> RunsNewImage {
    match runs_desired_image(pod, index, &pod.containers[index], status, change) {
        Runs::Desired => RunsNewImage::Yes,
        Runs::Other => RunsNewImage::No,
        Runs::AssumedAfter(time) => {
            let started = status.started_at.unwrap_or(record.patched_at);
            match started.max(record.patched_at).checked_add(time) {
                Ok(at) if at > now => RunsNewImage::From(at),
                _ => RunsNewImage::Yes,
            }
        }
    }
}

enum Runs {
    Desired,
    Other,
    AssumedAfter(SignedDuration),
}

fn runs_desired_image(
    pod: &Pod,
    index: usize,
    container: &Container,
    status: &ContainerStatus,
    change: &ContainerChange,
) -> Runs {
    // What was observed once remains true, whatever the statuses of later generations show.
    if change.turn == Turn::Passed {
        return Runs::Desired;
    }
    if same_image(&container.image, status) && !change.from_named {
        return Runs::Desired;
    }
    if same_name(&container.image, &change.from_image) && !change.from_unfinished {
        // Only the resources changed. The image is the old one, which the node reports under another name.
        return Runs::Desired;
    }
    if let Some(first) =
        pod.first_status.as_ref().filter(|first| first.generation == pod.generation)
    {
        let first_id = first.container_ids.get(index).map_or("", String::as_str);
        if first_id != status.container_id {
            return Runs::Desired;
        }
        // If the container is a new one, it was already there in the first status of this generation. Either a crash
        // or a superseded change started it, or it runs the desired image and the node always reports another name.
        return if status.container_id == change.from_container_id {
            old_container_runs(change)
        } else {
            Runs::AssumedAfter(SETTLING_TIME_SUPERSEDED)
        };
    }
    if status.container_id == change.from_container_id {
        return old_container_runs(change);
    }
    let superseded = change.from_unfinished
        && same_name(&change.from_image, &status.image)
        && status.restart_count < change.from_restart_count + 2;
    Runs::AssumedAfter(if superseded { SETTLING_TIME_SUPERSEDED } else { SETTLING_TIME })
}

/// Which image runs if the container is still the one from before the change.
fn old_container_runs(change: &ContainerChange) -> Runs {
    if change.from_named {
        // If another client changed the image, and this change undoes that before the kubelet acts, nothing restarts.
        Runs::AssumedAfter(SETTLING_TIME_SUPERSEDED)
    } else {
        Runs::Other
    }
}

/// Whether a container runs the wanted image, as far as names and digests show.
pub(crate) fn same_image(wanted: &str, status: &ContainerStatus) -> bool {
    match wanted.split_once('@') {
        Some((_, digest)) => status.image_id.ends_with(digest),
        None => same_name(wanted, &status.image),
    }
}

/// Whether two references name the same image: `game` is docker.io/library/game:latest.
fn same_name(a: &str, b: &str) -> bool {
    a == b || full_name(a) == full_name(b)
}

fn full_name(image: &str) -> String {
    let (host, path) = match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
            (host, path.to_owned())
        }
        Some(_) => ("docker.io", image.to_owned()),
        None => ("docker.io", format!("library/{image}")),
    };
    let last = path.rsplit('/').next().unwrap_or_default();
    let tag = if last.contains([':', '@']) { "" } else { ":latest" };
    format!("{host}/{path}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_full_names_denote_the_same_image() {
        for (a, b, same) in [
            ("python:3.5", "docker.io/library/python:3.5", true),
            ("python", "docker.io/library/python:latest", true),
            ("me/game:1", "docker.io/me/game:1", true),
            ("localhost:5055/game:v1", "localhost:5055/game:v1", true),
            ("host:80/game", "host:80/game:latest", true),
            ("game:v1", "game:v2", false),
            ("mirror.io/game:v1", "game:v1", false),
        ] {
            assert_eq!(same_name(a, b), same, "{a} and {b}");
        }
    }
}
