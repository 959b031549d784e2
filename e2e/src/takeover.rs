//! Measures a takeover: the time without a working operator after the leader exits.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use judge::Event;
use serde_json::json;

use crate::case::Case;
use crate::cluster::operator::Operator;
use crate::wait::eventually;

/// How a leader exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// kill -9.
    Killed,
    /// SIGTERM.
    Terminated,
}

/// Stops the leader, which is the case's operator, scales the workload, and measures the time until the standby
/// first writes a pod. The standby becomes the case's operator, and the former leader is restarted as the standby.
pub async fn takeover(
    case: &mut Case,
    standby: &mut Operator,
    exit: Exit,
    replicas: i64,
) -> Result<Duration> {
    // Starting the witness takes a second, so it is started before the measurement.
    case.start_witness().await?;
    let start = Timestamp::now();
    match exit {
        Exit::Killed => case.kill_operator().await?,
        Exit::Terminated => case.operator.terminate().await?,
    }
    std::mem::swap(&mut case.operator, standby);
    let scale = json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
    case.plane().patch(&case.path(), &scale).await?;
    let is_pod_write = |event: &Event| {
        let object = event.object_ref.as_ref();
        event.received > start && object.is_some_and(|it| it.resource == "pods")
    };
    let first_write =
        eventually("the standby writes a pod", Duration::from_secs(120), async || {
            let events = case.events()?;
            let first = events.iter().filter(|event| is_pod_write(event)).map(|it| it.received);
            first.min().context("the standby has written no pod")
        })
        .await?;
    case.until_settled(replicas).await?;
    standby.start().await?;
    Ok(first_write.duration_since(start).unsigned_abs())
}
