//! Changes all objects of a list while other clients change them, too.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Error;
use tokio::time::sleep;

/// How many objects are changed at the same time.
const CONCURRENCY: usize = 16;
/// How many times the objects are listed if changes keep conflicting.
const MAX_ROUNDS: usize = 10;
const PAUSE: Duration = Duration::from_millis(500);

/// Changes all listed objects, and returns how many were changed. Those that no longer exist need no change.
/// After a conflict the objects are listed again, because some have changed, or were replaced by new objects of the
/// same name.
pub(super) async fn change_all<T>(
    list: impl AsyncFn() -> Result<Vec<T>, Error>,
    change: impl AsyncFn(&T) -> Result<(), Error>,
) -> Result<usize, Error> {
    let mut changed = 0;
    for round in 1.. {
        let objects = list().await?;
        let changes = stream::iter(&objects).map(async |it| change(it).await);
        let results: Vec<_> = changes.buffer_unordered(CONCURRENCY).collect().await;
        let mut conflict = None;
        for result in results {
            match result {
                Ok(()) => changed += 1,
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(Error::Api(status)) if status.code == 409 => conflict = Some(status),
                Err(error) => return Err(error),
            }
        }
        match conflict {
            Some(status) if round == MAX_ROUNDS => return Err(Error::Api(status)),
            Some(_) => sleep(PAUSE).await,
            None => break,
        }
    }
    Ok(changed)
}
