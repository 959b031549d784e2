//! Comparisons of the caches with the API server, retried until they succeed. A process becomes a
//! candidate once it has the permissions for them, and plans as the leader once its caches have caught up.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::warn;

use super::RunError;
use crate::jitter::jittered;
use gamekeeper_core::causes::with_causes;

/// The backoff between comparisons of the caches with the API server.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Retries a comparison of the caches with the API server until it succeeds, but no longer than the limit.
pub(super) async fn retry_for<F>(limit: Duration, compare: impl Fn() -> F) -> Result<(), RunError>
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let mut why = None;
    let compared = retry(compare, |error| why = Some(error));
    let compared = timeout(limit, compared).await;
    compared.map_err(|_| RunError::Behind {
        limit,
        why: why.unwrap_or_else(|| "no response to a list or watch".to_owned()),
    })
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
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn forbidden() -> kube::Error {
        let message = "pods is forbidden: cannot list resource pods";
        kube::Error::Api(
            kube::core::Status::failure(message, "Forbidden")
                .with_code(403)
                .boxed(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_at_the_limit_and_the_error_names_the_missing_permission() {
        let started = Instant::now();
        let result = retry_for(LIMIT, || async { Err(forbidden()) }).await;
        let error = result.expect_err("a permission is missing").to_string();
        assert!(
            error.contains("30 s") && error.contains("cannot list resource pods"),
            "{error}"
        );
        assert_eq!(started.elapsed(), LIMIT);
        assert!(retry_for(LIMIT, std::future::pending).await.is_err());
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
        assert!(retry_for(LIMIT, compare).await.is_ok());
    }
}
