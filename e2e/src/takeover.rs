//! How long games are without an operator at work when the leader goes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::audit::Event;
use crate::case::{Case, GAME};
use crate::operator::Operator;
use crate::wait::eventually;

/// How a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// kill -9.
    Killed,
    /// SIGTERM.
    Terminated,
}

/// Ends the leader, which is the case's operator, gives the game so many replicas, and measures until
/// the standby does something about it. From then on that one is the case's operator, and the one
/// that ended stands by.
pub async fn takeover(
    case: &mut Case,
    standby: &mut Operator,
    end: End,
    replicas: i64,
) -> Result<Duration> {
    let begun = Timestamp::now();
    match end {
        End::Killed => case.operator.kill().await?,
        End::Terminated => case.operator.terminate().await?,
    }
    std::mem::swap(&mut case.operator, standby);
    scale(case, replicas).await?;
    let is_work = |event: &Event| {
        let about = event.object_ref.as_ref();
        event.received > begun && about.is_some_and(|it| it.resource == "pods")
    };
    let at_work = eventually("the standby works", Duration::from_secs(30), async || {
        let events = case.events()?;
        let first = events
            .iter()
            .filter(|event| is_work(event))
            .map(|it| it.received);
        first.min().context("it writes nothing")
    })
    .await?;
    case.until_settled(replicas).await?;
    standby.start().await?;
    Ok(at_work.duration_since(begun).unsigned_abs())
}

/// Scales without kubectl, whose start is longer than a takeover may be.
async fn scale(case: &Case, replicas: i64) -> Result<()> {
    let namespace = &case.namespace;
    let path =
        format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{namespace}/gamedeployments/{GAME}");
    let patch = json!({"spec": {"replicas": replicas}}).to_string();
    let request = Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(patch.into_bytes())?;
    let answer: Value = case.plane().client().request(request).await?;
    ensure!(answer["spec"]["replicas"] == replicas, "{answer:#}");
    Ok(())
}
