//! Limits on concurrent measurements and on their memory, so that no namespace uses up the process's memory or file
//! descriptors.
//!
//! A measurement gets its permit before anything is read or written for it. It may then hold only short
//! texts: looked-up values, filled-in arguments, a response. If a text turns out to be long, the measurement
//! waits for a permit for long texts. Meanwhile the body of an HTTP call is not read any further; any other
//! text is dropped, and read or filled in again once there is a permit.

use std::sync::Arc;

use crate::runtime::fair::{Capacity, NamespaceLimiter, Permit};

/// The longest text that a measurement may hold without a permit for long texts, in bytes.
pub(super) const MAX_SHORT_TEXT: usize = 32 << 10;
/// The longest object that is read from the API server, in bytes: none that can be stored is longer.
const MAX_OBJECT: usize = 2 << 20;
/// The limits on concurrent measurements, so that neither file descriptors nor memory run out. A measurement counts
/// until its result has been evaluated; measurements above the limits wait.
const CALL_CAPACITY: Capacity = Capacity { shared: 1_024, per_namespace: 896, reserved: 8 };
/// The limits on those measurements that hold long texts. All texts together use 200 MiB at most, and 2 MiB more
/// for each namespace that uses its reserved permit.
const LONG_TEXT_CAPACITY: Capacity = Capacity { shared: 64, per_namespace: 48, reserved: 1 };

/// The limits on all measurements.
pub(super) struct CallLimits {
    pub calls: NamespaceLimiter,
    pub long: NamespaceLimiter,
}

impl Default for CallLimits {
    fn default() -> Self {
        CallLimits {
            calls: NamespaceLimiter::new(CALL_CAPACITY),
            long: NamespaceLimiter::new(LONG_TEXT_CAPACITY),
        }
    }
}

impl CallLimits {
    /// Waits for the permit of a measurement.
    pub(super) async fn enter(self: &Arc<Self>, namespace: &str) -> CallPermit {
        CallPermit {
            call: Arc::new(self.calls.take(namespace).await),
            long: None,
            namespace: namespace.to_owned(),
            limits: Arc::clone(self),
        }
    }
}

/// The permit of one measurement. It is released when this value is dropped.
pub(super) struct CallPermit {
    limits: Arc<CallLimits>,
    namespace: String,
    call: Arc<Permit>,
    long: Option<Arc<Permit>>,
}

/// What keeps a measurement's permits from being released while the connection of its call exists.
#[derive(Clone)]
pub(super) struct PermitShare {
    #[expect(dead_code, reason = "held, never read")]
    call: Arc<Permit>,
    #[expect(dead_code, reason = "held, never read")]
    long: Option<Arc<Permit>>,
}

impl CallPermit {
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A share of the permits for a connection of the measurement.
    pub(super) fn share(&self) -> PermitShare {
        PermitShare { call: Arc::clone(&self.call), long: self.long.clone() }
    }

    /// Whether the measurement may hold long texts.
    pub(super) fn allows_long_texts(&self) -> bool {
        self.long.is_some()
    }

    /// The longest text that the measurement may read from the API server now, in bytes.
    pub(super) fn longest_text(&self) -> usize {
        match self.allows_long_texts() {
            true => MAX_OBJECT,
            false => MAX_SHORT_TEXT,
        }
    }

    /// Waits until the measurement may hold long texts. The caller must not hold any in the meantime.
    pub(super) async fn grow(&mut self) {
        if self.long.is_none() {
            let long = self.limits.long.take(&self.namespace).await;
            self.long = Some(Arc::new(long));
        }
    }

    /// Releases the permit for long texts. The caller must not hold any from then on.
    pub(super) fn shrink(&mut self) {
        self.long = None;
    }
}
