//! The limits of callers: their connections, and the memory of their requests and responses.
//!
//! API servers and kubelets present no client certificate, so callers cannot be authenticated. Instead, each address
//! counts as one caller, with its own limits: a caller that exceeds them delays no other, and all callers together
//! cannot exhaust the process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// API servers open few connections, and reuse them.
const MAX_CONNECTIONS_PER_CALLER: usize = 32;
/// In bytes: enough for two of the largest objects of an API server.
const MAX_MEMORY_PER_CALLER: usize = 64 << 20;
const MAX_MEMORY: usize = 128 << 20;
/// The memory of a map in parsed JSON: its first node holds up to eleven entries.
const BYTES_PER_MAP: usize = 700;
/// The memory of any other value.
const BYTES_PER_VALUE: usize = 160;

pub(super) struct Callers {
    memory: Arc<Semaphore>,
    known: Mutex<HashMap<IpAddr, Weak<Caller>>>,
}

/// An address that calls, with its limits; kept while it has a connection or a request in progress.
pub(crate) struct Caller {
    /// The address, as text.
    pub address: String,
    connections: Arc<Semaphore>,
    /// The memory of this caller, in bytes.
    own: Arc<Semaphore>,
    /// The memory of all callers, in bytes.
    total: Arc<Semaphore>,
}

/// One caller, or all callers together, would use too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitExceeded;

impl Default for Callers {
    fn default() -> Self {
        Callers { memory: Arc::new(Semaphore::new(MAX_MEMORY)), known: Mutex::default() }
    }
}

impl Callers {
    pub(super) fn caller(&self, address: IpAddr) -> Arc<Caller> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, caller| caller.strong_count() > 0);
        if let Some(caller) = known.get(&address).and_then(Weak::upgrade) {
            return caller;
        }
        let caller = Arc::new(Caller {
            address: address.to_string(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS_PER_CALLER)),
            own: Arc::new(Semaphore::new(MAX_MEMORY_PER_CALLER)),
            total: Arc::clone(&self.memory),
        });
        known.insert(address, Arc::downgrade(&caller));
        caller
    }
}

impl Caller {
    /// Counts one more connection until the permit is dropped.
    pub(super) fn connect(&self) -> Result<OwnedSemaphorePermit, LimitExceeded> {
        Arc::clone(&self.connections).try_acquire_owned().map_err(|_| LimitExceeded)
    }

    pub(crate) fn budget(self: Arc<Self>) -> MemoryBudget {
        MemoryBudget { caller: self, taken: Vec::new() }
    }
}

/// The memory of one request, counted until this is dropped.
pub(crate) struct MemoryBudget {
    caller: Arc<Caller>,
    taken: Vec<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    /// Counts this many more bytes; fails if a limit would be exceeded.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), LimitExceeded> {
        let bytes = u32::try_from(bytes).map_err(|_| LimitExceeded)?;
        let shares = [&self.caller.own, &self.caller.total].map(Arc::clone);
        for share in shares {
            let permit = share.try_acquire_many_owned(bytes);
            self.keep(permit.map_err(|_| LimitExceeded)?);
        }
        Ok(())
    }

    /// Counts the memory that this JSON text will use once it is parsed.
    pub(crate) fn take_parsed(&mut self, text: &[u8]) -> Result<(), LimitExceeded> {
        let sizes = text.iter().map(|byte| match byte {
            b'{' => BYTES_PER_MAP,
            b',' | b'[' => BYTES_PER_VALUE,
            _ => 1,
        });
        self.take(sizes.sum())
    }

    /// Merges permits, so that those for many small chunks do not use much memory themselves.
    fn keep(&mut self, permit: OwnedSemaphorePermit) {
        let same =
            self.taken.iter_mut().find(|taken| Arc::ptr_eq(taken.semaphore(), permit.semaphore()));
        match same {
            Some(taken) => taken.merge(permit),
            None => self.taken.push(permit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn only_the_caller_with_too_many_connections_is_refused() {
        let callers = Callers::default();
        let greedy = callers.caller(address(1));
        let held: Vec<_> = (0..MAX_CONNECTIONS_PER_CALLER).map(|_| greedy.connect()).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(callers.caller(address(1)).connect().is_err());
        assert!(callers.caller(address(2)).connect().is_ok());
        drop(held);
        assert!(greedy.connect().is_ok());
    }

    #[test]
    fn memory_is_counted_per_caller_and_in_total_until_the_budget_is_dropped() {
        let callers = Callers::default();
        let mut first = callers.caller(address(1)).budget();
        assert_eq!(first.take(MAX_MEMORY_PER_CALLER), Ok(()));
        let mut same_caller = callers.caller(address(1)).budget();
        assert_eq!(same_caller.take(1), Err(LimitExceeded), "another request of the same caller");
        let mut second = callers.caller(address(2)).budget();
        assert_eq!(second.take(MAX_MEMORY_PER_CALLER), Ok(()));
        let mut third = callers.caller(address(3)).budget();
        let remaining = MAX_MEMORY - 2 * MAX_MEMORY_PER_CALLER;
        assert_eq!(third.take(remaining), Ok(()));
        assert_eq!(third.take(1), Err(LimitExceeded), "the total limit");
        drop((first, same_caller));
        assert_eq!(third.take(1), Ok(()));
        assert_eq!(callers.caller(address(1)).budget().take(1), Ok(()));
    }

    #[test]
    fn the_memory_of_parsed_json_is_counted_before_parsing() {
        let callers = Callers::default();
        let maps = br#"{"":0},"#.repeat(1 << 20);
        let text = vec![b'x'; 8 << 20];
        let mut budget = callers.caller(address(1)).budget();
        assert_eq!(budget.take_parsed(&maps), Err(LimitExceeded));
        assert_eq!(callers.caller(address(2)).budget().take_parsed(&text), Ok(()));
    }
}
