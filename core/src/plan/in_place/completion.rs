//! When a change of a running pod is done.
//!
//! A kubelet shows the old container as running and ready until the new one runs, a container that
//! crashed in between looks like a new one, two quick changes are made one after the other with
//! the wrong image ready in between, and status.image may be any of the node's names for the
//! content. The rule that holds on all of it, as recorded from a real kubelet: the status is of the
//! newest generation, the container is ready, and either status.image is the wanted one, or the
//! container is another one than in the first status of that generation.

use jiff::{SignedDuration, Timestamp};

use crate::plan::observed::{
    Container, ContainerChange, ContainerStatus, InPlaceRecord, Pod, Resize, Turn,
};

/// How far a change is.
#[derive(Clone, Debug, PartialEq)]
pub enum Completion {
    /// Every changed container runs what is wanted and is ready.
    Done,
    /// Not yet; worth looking at again at that moment even if nothing is seen to change.
    Pending(Option<Timestamp>),
    /// The node refuses or puts off the resize.
    Stuck(String),
}

/// Without the first status of a generation, a new container is believed once it has run so long.
const SETTLED: SignedDuration = SignedDuration::from_secs(10);
/// The same when it may still be the container of a change that this one overtook.
const SETTLED_OVERTAKEN: SignedDuration = SignedDuration::from_mins(5);

/// How far the recorded change of a pod is.
pub fn completion(pod: &Pod, record: &InPlaceRecord, now: Timestamp) -> Completion {
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

/// Whether the kubelet has looked at the newest spec. Where it does not say so, that is taken for granted.
pub fn is_observed(pod: &Pod) -> bool {
    pod.observed_generation == 0 || pod.observed_generation == pod.generation
}

/// Whether a container runs the image of its spec.
pub enum RunsNewImage {
    /// It does.
    Yes,
    /// It does not, or nothing tells.
    No,
    /// It is taken for granted from that moment on.
    From(Timestamp),
}

/// Whether a container that was changed runs the image of its spec, going by a status for the newest
/// generation.
pub fn runs_new_image(
    pod: &Pod,
    record: &InPlaceRecord,
    index: usize,
    status: &ContainerStatus,
    change: &ContainerChange,
    now: Timestamp,
) -> RunsNewImage {
    match runs_wanted_image(pod, index, &pod.containers[index], status, change) {
        Runs::Wanted => RunsNewImage::Yes,
        Runs::Other => RunsNewImage::No,
        Runs::BelievedAfter(time) => {
            let started = status.started_at.unwrap_or(record.patched_at);
            match started.max(record.patched_at).checked_add(time) {
                Ok(at) if at > now => RunsNewImage::From(at),
                _ => RunsNewImage::Yes,
            }
        }
    }
}

enum Runs {
    Wanted,
    Other,
    BelievedAfter(SignedDuration),
}

fn runs_wanted_image(
    pod: &Pod,
    index: usize,
    container: &Container,
    status: &ContainerStatus,
    change: &ContainerChange,
) -> Runs {
    // What was seen once stays true, whatever the statuses of later generations show.
    if change.turn == Turn::Passed || same_image(&container.image, status) {
        return Runs::Wanted;
    }
    if same_name(&container.image, &change.from_image) && !change.from_unfinished {
        // The image did not change, only the resources: the node calls it by another name.
        return Runs::Wanted;
    }
    if let Some(first) = pod
        .first_status
        .as_ref()
        .filter(|first| first.generation == pod.generation)
    {
        let before = first.container_ids.get(index).map_or("", String::as_str);
        if before != status.container_id {
            return Runs::Wanted;
        }
        // It was new already when the kubelet first looked at this generation: a crash, or an
        // overtaken change. Or the node calls the wanted image by another name for good.
        return if status.container_id == change.from_container_id {
            Runs::Other
        } else {
            Runs::BelievedAfter(SETTLED_OVERTAKEN)
        };
    }
    if status.container_id == change.from_container_id {
        return Runs::Other;
    }
    let overtaken = change.from_unfinished
        && same_name(&change.from_image, &status.image)
        && status.restart_count < change.from_restart_count + 2;
    Runs::BelievedAfter(if overtaken {
        SETTLED_OVERTAKEN
    } else {
        SETTLED
    })
}

/// Whether a container runs that image, as far as names and digests tell.
pub fn same_image(wanted: &str, status: &ContainerStatus) -> bool {
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
    let tag = if last.contains([':', '@']) {
        ""
    } else {
        ":latest"
    };
    format!("{host}/{path}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_full_names_are_one_image() {
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
