//! Comparisons of the caches with the API server, retried until they succeed. A process becomes a
//! candidate once it has the permissions for them, and plans as the leader once its caches have caught up.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use super::RunError;
use crate::runtime::jitter::jittered;
use gamekeeper_core::causes::with_causes;

/// The backoff between comparisons of the caches with the API server.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// How many times as long as the limit a comparison may take while lists make progress. The API server cannot continue a
/// list for longer.
const MAX_LIMITS: u32 = 10;

/// Retries a comparison of the caches with the API server until it succeeds, but no longer than the limit without
/// `progress`, which tells when something of a list last arrived. A list of all pods of a large cluster may take longer
/// than the limit, and another process would have to list them, too.
pub(super) async fn retry_for<F>(
    limit: Duration,
    compare: impl Fn() -> F,
    progress: impl Fn() -> Option<Instant>,
) -> Result<(), RunError>
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let why = Cell::new(None);
    let started = Instant::now();
    let mut compared = pin!(retry(compare, |error| why.set(Some(error))));
    let last = started + limit * MAX_LIMITS;
    let mut deadline = started + limit;
    while timeout_at(deadline, &mut compared).await.is_err() {
        let later = progress().map(|at| (at + limit).min(last));
        match later.filter(|later| *later > deadline) {
            Some(later) => deadline = later,
            None => {
                return Err(RunError::Behind {
                    limit: started.elapsed(),
                    why: why.take().unwrap_or_else(|| "no response to a list or watch".to_owned()),
                });
            }
        }
    }
    Ok(())
}

/// Retries a comparison of the caches with the API server until it succeeds.
pub(super) async fn retry<F>(compare: impl Fn() -> F, mut on_error: impl FnMut(String))
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let mut backoff = MIN_BACKOFF;
    while let Err(error) = compare().await {
        let error = with_causes(&error);
        warn!(error, "cannot compare the caches with the API server");
        on_error(error);
        sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn forbidden() -> kube::Error {
        let message = "pods is forbidden: cannot list resource pods";
        kube::Error::Api(kube::core::Status::failure(message, "Forbidden").with_code(403).boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_at_the_limit_and_the_error_names_the_missing_permission() {
        let started = Instant::now();
        let result = retry_for(LIMIT, || async { Err(forbidden()) }, || None).await;
        let error = result.expect_err("a permission is missing").to_string();
        assert!(error.contains("30 s") && error.contains("cannot list resource pods"), "{error}");
        assert_eq!(started.elapsed(), LIMIT);
        assert!(retry_for(LIMIT, std::future::pending, || None).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_comparison_is_retried_until_it_succeeds() {
        let attempts = Cell::new(0);
        let compare = || {
            attempts.set(attempts.get() + 1);
            let result = match attempts.get() < 3 {
                true => Err(forbidden()),
                false => Ok(()),
            };
            async { result }
        };
        assert!(retry_for(LIMIT, compare, || None).await.is_ok());
    }

    /// As in a cluster with 150,000 pods whose API server cannot stream lists.
    #[tokio::test(start_paused = true)]
    async fn a_list_may_take_longer_than_the_limit_while_it_makes_progress() {
        let started = Instant::now();
        let ends_after = |limits: u32| {
            move || async move {
                sleep(LIMIT * limits).await;
                Ok(())
            }
        };
        let arrives = |until: Duration| move || Some(Instant::now().min(started + until));
        let listed = retry_for(LIMIT, ends_after(5), arrives(LIMIT * 5)).await;
        assert!(listed.is_ok());
        let started = Instant::now();
        let stalled = retry_for(LIMIT, ends_after(5), move || Some(started + LIMIT)).await;
        assert!(stalled.is_err());
        assert_eq!(started.elapsed(), LIMIT * 2);
        let started = Instant::now();
        let endless = retry_for(LIMIT, std::future::pending, || Some(Instant::now())).await;
        assert!(endless.is_err());
        assert_eq!(started.elapsed(), LIMIT * MAX_LIMITS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_between_comparisons_have_jitter() {
        let attempts = Cell::new(0);
        let compare = || {
            attempts.set(attempts.get() + 1);
            let result = if attempts.get() < 4 { Err(forbidden()) } else { Ok(()) };
            async { result }
        };
        let started = Instant::now();
        retry(compare, |_| ()).await;
        let exact = MIN_BACKOFF * (1 + 2 + 4);
        assert!(started.elapsed() > exact, "{:?}", started.elapsed());
    }
}
