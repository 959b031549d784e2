//! Commands that follow an object by reading it at intervals: Clusters and SidecarSets, of which there are few.

use std::io::{Write as _, stdout};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::command::put;
use crate::error::Error;
use crate::follow::{REDRAW, REDRAW_INTERVAL};
use crate::options::ClusterOptions;
use crate::page::sanitize;
use crate::style::Style;

/// Reads an object every second until `is_over` holds or the limit is reached, and passes each state before that to
/// `report`. The limit includes the time to connect.
pub async fn until<T>(
    target: &ClusterOptions,
    limit: Option<Duration>,
    read: impl AsyncFn(&Cluster) -> Result<T, Error>,
    is_over: impl Fn(&T) -> bool,
    mut report: impl FnMut(&T) -> Result<(), Error>,
) -> Result<T, Error> {
    let mut last = None;
    let polling = async {
        let cluster = Cluster::connect(target).await?;
        let mut outage = Outage::default();
        loop {
            if let Some(found) = outage.check(read(&cluster).await)? {
                if is_over(&found) {
                    return Ok(found);
                }
                report(&found)?;
                last = Some(found);
            }
            sleep(REDRAW_INTERVAL).await;
        }
    };
    match limit {
        None => polling.await,
        Some(limit) => match timeout(limit, polling).await {
            Ok(ended) => ended,
            Err(_) => last.ok_or(Error::no_response(limit)),
        },
    }
}

/// Shows objects once; with an interval, whenever they change, until they are deleted.
pub async fn show<T>(
    target: &ClusterOptions,
    interval: Option<Duration>,
    read: impl AsyncFn(&Cluster) -> Result<T, Error>,
    draw: impl Fn(&T, Style, Timestamp) -> String,
) -> Result<(), Error> {
    let style = Style::of_stdout();
    let cluster = Cluster::connect(target).await?;
    let Some(interval) = interval else {
        return put(&draw(&read(&cluster).await?, style, Timestamp::now()));
    };
    let (mut outage, mut last) = (Outage::default(), String::new());
    loop {
        if let Some(found) = outage.check(read(&cluster).await)? {
            let drawn = draw(&found, style, Timestamp::now());
            // Without a terminal, nothing is printed again if only ages have changed.
            let timeless = draw(&found, style, Timestamp::UNIX_EPOCH);
            if style.symbols {
                put(&format!("{REDRAW}{drawn}"))?;
                stdout().flush()?;
            } else if timeless != last {
                put(&drawn)?;
            }
            last = timeless;
        }
        sleep(interval).await;
    }
}

/// Reports on stderr when the connection is lost, and when it is restored.
#[derive(Default)]
struct Outage {
    is_reported: bool,
}

impl Outage {
    /// The response; None if a retry may succeed.
    fn check<T>(&mut self, response: Result<T, Error>) -> Result<Option<T>, Error> {
        match response {
            Ok(response) => {
                if std::mem::take(&mut self.is_reported) {
                    eprintln!("connection restored");
                }
                Ok(Some(response))
            }
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    eprintln!("connection lost: {}", sanitize(&error.to_string()));
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_reported_once_and_a_final_error_is_returned() {
        let mut outage = Outage::default();
        let lost = || Err::<(), _>(Error::Unreachable("no route".to_owned()));
        for _ in 0..2 {
            assert!(outage.check(lost()).expect("a retry").is_none());
            assert!(outage.is_reported);
        }
        assert!(outage.check(Ok(())).expect("a response").is_some());
        assert!(!outage.is_reported);
        let deleted = Err::<(), _>(Error::NotFound("deleted".to_owned()));
        assert!(outage.check(deleted).is_err());
    }
}
