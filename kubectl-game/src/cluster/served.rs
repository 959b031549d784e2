//! Which kinds the cluster serves. It may have the CRDs of both kinds of workloads, of only one, or of neither.

use gamekeeper_core::api::names::WorkloadKind;

use crate::error::Error;
use crate::kind::short_name;

/// Which of the requested kinds the cluster serves.
#[derive(Default)]
pub(super) struct Served {
    serves_any: bool,
    missing: Option<WorkloadKind>,
}

impl Served {
    /// Records whether the cluster serves a kind. Returns the response; None if the kind is not served.
    pub(super) fn record<T>(
        &mut self,
        kind: WorkloadKind,
        response: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match response {
            Err(error) if error.is_404() => {
                self.missing = Some(kind);
                Ok(None)
            }
            response => {
                self.serves_any = true;
                response.map(Some)
            }
        }
    }

    /// Fails if the cluster serves none of the kinds.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.missing {
            Some(kind) if !self.serves_any => {
                Err(not_installed(kind.as_str(), &short_name(kind, "NAME")))
            }
            _ => Ok(()),
        }
    }
}

/// The error if the cluster does not serve a kind. `name` shows how a user refers to an object of that kind.
pub fn not_installed(kind: &str, name: &str) -> Error {
    Error::NotFound(format!(
        "the cluster does not serve {kind}s ({name}): install gamekeeper's CRDs first"
    ))
}
