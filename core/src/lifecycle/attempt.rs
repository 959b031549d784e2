//! The attempts at a step on a node: the state of the last one, and when the next one is due.

use jiff::{SignedDuration, Timestamp};

use crate::api::names::{RETRY_ANNOTATION, RUN_ATTEMPT};
use crate::api::{HookPhase, HookRun};

/// The time between a failed attempt and the next one: 10 s, 20 s, 40 s and so on, up to five minutes.
const MIN_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(300);

/// The progress of the attempts at a step on a node.
#[derive(Debug)]
pub(super) enum Progress {
    /// An attempt is due.
    Due {
        /// Its number.
        attempt: u32,
        /// The failure of the attempt before it, if there was one.
        failure: Option<Failure>,
    },
    /// An attempt is in progress.
    Running {
        /// Its number.
        attempt: u32,
        /// What prevents it from starting.
        obstacle: Option<String>,
        /// The failure of the attempt before it, if there was one.
        failure: Option<Failure>,
    },
    /// The last attempt failed, and the next one is not due yet.
    Failed {
        /// Why it failed.
        failure: Failure,
        /// When the next one is due.
        next: Timestamp,
    },
    /// The last attempt was successful.
    Passed,
}

/// An attempt that failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Its number.
    pub attempt: u32,
    /// Why it failed.
    pub why: String,
}

/// The number of an attempt.
pub(super) fn number(run: &HookRun) -> u32 {
    let number = annotation(run, RUN_ATTEMPT);
    number.and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// An annotation of a run.
pub(super) fn annotation<'a>(run: &'a HookRun, key: &str) -> Option<&'a str> {
    let annotations = run.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

/// The progress of the attempts at a step on a node. `retry` is the user's latest request for another attempt.
pub(super) fn progress(runs: &[&HookRun], retry: Option<&str>, now: Timestamp) -> Progress {
    let Some(last) = runs.iter().max_by_key(|run| number(run)) else {
        return Progress::Due { attempt: 1, failure: None };
    };
    let attempt = number(last);
    match last.phase() {
        HookPhase::Successful => Progress::Passed,
        phase if phase.is_completed() => {
            let failure = failure(last);
            let next = next(last);
            let is_requested = retry.is_some() && retry != annotation(last, RETRY_ANNOTATION);
            match is_requested || next <= now {
                true => Progress::Due { attempt: attempt + 1, failure: Some(failure) },
                false => Progress::Failed { failure, next },
            }
        }
        _ => Progress::Running {
            attempt,
            obstacle: obstacle(last),
            failure: runs
                .iter()
                .find(|run| number(run) + 1 == attempt && run.phase().has_failed())
                .map(|run| failure(run)),
        },
    }
}

/// Attempts that are no longer needed. The last attempt is kept; while it is in progress, so is the one before it.
pub(super) fn outdated<'a>(runs: &[&'a HookRun]) -> Vec<&'a HookRun> {
    let Some(last) = runs.iter().max_by_key(|run| number(run)) else {
        return Vec::new();
    };
    let kept = match last.phase().is_completed() {
        true => number(last),
        false => number(last).saturating_sub(1),
    };
    let old = runs.iter().filter(|run| number(run) < kept);
    old.copied().collect()
}

/// When the attempt after this one is due.
fn next(run: &HookRun) -> Timestamp {
    let status = run.status.as_ref();
    let finished = status.and_then(|status| status.finished_at.as_ref());
    let ended = finished.or(run.metadata.creation_timestamp.as_ref());
    let ended = ended.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let doublings = number(run).saturating_sub(1).min(10);
    let backoff = (MIN_BACKOFF * 2_i32.pow(doublings)).min(MAX_BACKOFF);
    ended.checked_add(backoff).unwrap_or(Timestamp::MAX)
}

fn failure(run: &HookRun) -> Failure {
    Failure { attempt: number(run), why: why(run) }
}

/// Why a run failed: the message of its measurement, without the name of the Job.
fn why(run: &HookRun) -> String {
    let status = run.status.as_ref();
    let results = status.map(|status| status.metric_results.as_slice());
    let measured = results.and_then(|it| it.first()?.measurements.last());
    let Some((measured, message)) = measured.and_then(|it| Some((it, it.message.as_deref()?)))
    else {
        let message = status.and_then(|status| status.message.clone());
        return message.unwrap_or_else(|| run.phase().to_string());
    };
    let job = measured.value.as_deref().unwrap_or_default();
    let rest = message.strip_prefix(&format!("job {job} failed: "));
    rest.unwrap_or(message).to_owned()
}

/// What prevents an attempt from starting.
fn obstacle(run: &HookRun) -> Option<String> {
    let results = &run.status.as_ref()?.metric_results;
    let message = results.first()?.measurements.last()?.message.as_deref()?;
    let (_, why) = message.split_once(" cannot start yet: ")?;
    Some(why.to_owned())
}
