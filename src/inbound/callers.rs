//! What callers may take up: connections, and memory for what they ask and what they are told.
//!
//! Every address that reaches the port is heard: API servers show no certificate by which to know them, nor
//! do kubelets. So each address has a share of its own: a caller that asks for more keeps no other one
//! waiting, and all of them together cannot fill the process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time from one address; API servers keep few, and keep them.
const CONNECTIONS: usize = 32;
/// Memory for what one address asks and is told, and for what all are, in bytes. Twice the largest objects that an
/// API server can hold fit into the first.
const MEMORY_OF_ONE: usize = 64 << 20;
const MEMORY_OF_ALL: usize = 128 << 20;
/// What a parsed question takes for each map in it, and for each further value: a map's first node has
/// room for eleven entries at once.
const OF_A_MAP: usize = 700;
const OF_A_VALUE: usize = 160;

/// All who call.
pub(super) struct Callers {
    memory: Arc<Semaphore>,
    known: Mutex<HashMap<IpAddr, Weak<Caller>>>,
}

/// Whoever calls from one address. Known for as long as something of his is held.
pub struct Caller {
    connections: Arc<Semaphore>,
    own: Arc<Semaphore>,
    of_all: Arc<Semaphore>,
}

/// There is no room for this now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Default for Callers {
    fn default() -> Self {
        Callers {
            memory: Arc::new(Semaphore::new(MEMORY_OF_ALL)),
            known: Mutex::default(),
        }
    }
}

impl Callers {
    /// Who calls from this address.
    pub(super) fn caller(&self, address: IpAddr) -> Arc<Caller> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, caller| caller.strong_count() > 0);
        if let Some(caller) = known.get(&address).and_then(Weak::upgrade) {
            return caller;
        }
        let caller = Arc::new(Caller {
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            own: Arc::new(Semaphore::new(MEMORY_OF_ONE)),
            of_all: Arc::clone(&self.memory),
        });
        known.insert(address, Arc::downgrade(&caller));
        caller
    }
}

impl Caller {
    /// One connection more, for as long as this is held.
    pub(super) fn connect(&self) -> Result<OwnedSemaphorePermit, Full> {
        Arc::clone(&self.connections)
            .try_acquire_owned()
            .map_err(|_| Full)
    }

    /// No memory yet, of his share.
    pub fn room(self: Arc<Self>) -> Room {
        Room {
            caller: self,
            taken: Vec::new(),
        }
    }
}

/// Memory that a question takes; given back when it is dropped.
pub struct Room {
    caller: Arc<Caller>,
    taken: Vec<OwnedSemaphorePermit>,
}

impl Room {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// When they are not there.
    pub fn take(&mut self, bytes: usize) -> Result<(), Full> {
        let bytes = u32::try_from(bytes).map_err(|_| Full)?;
        let shares = [&self.caller.own, &self.caller.of_all].map(Arc::clone);
        for share in shares {
            let permit = share.try_acquire_many_owned(bytes);
            self.keep(permit.map_err(|_| Full)?);
        }
        Ok(())
    }

    /// Takes what this text takes when it is parsed.
    ///
    /// # Errors
    /// When that is not there.
    pub fn take_parsed(&mut self, text: &[u8]) -> Result<(), Full> {
        let sizes = text.iter().map(|byte| match byte {
            b'{' => OF_A_MAP,
            b',' | b'[' => OF_A_VALUE,
            _ => 1,
        });
        self.take(sizes.sum())
    }

    /// Keeps it as a part of what was taken before: who sends byte by byte takes no more for that.
    fn keep(&mut self, permit: OwnedSemaphorePermit) {
        let same = self
            .taken
            .iter_mut()
            .find(|taken| Arc::ptr_eq(taken.semaphore(), permit.semaphore()));
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
    fn a_caller_with_too_many_connections_keeps_out_only_himself() {
        let callers = Callers::default();
        let greedy = callers.caller(address(1));
        let held: Vec<_> = (0..CONNECTIONS).map(|_| greedy.connect()).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(callers.caller(address(1)).connect().is_err());
        assert!(callers.caller(address(2)).connect().is_ok());
        drop(held);
        assert!(greedy.connect().is_ok());
    }

    #[test]
    fn memory_is_bounded_for_one_caller_and_for_all_and_comes_back() {
        let callers = Callers::default();
        let mut first = callers.caller(address(1)).room();
        assert_eq!(first.take(MEMORY_OF_ONE), Ok(()));
        let mut again = callers.caller(address(1)).room();
        assert_eq!(again.take(1), Err(Full), "his other question");
        let mut second = callers.caller(address(2)).room();
        assert_eq!(second.take(MEMORY_OF_ONE), Ok(()));
        let mut third = callers.caller(address(3)).room();
        let rest = MEMORY_OF_ALL - 2 * MEMORY_OF_ONE;
        assert_eq!(third.take(rest), Ok(()));
        assert_eq!(third.take(1), Err(Full), "all together");
        drop((first, again));
        assert_eq!(third.take(1), Ok(()));
        assert_eq!(callers.caller(address(1)).room().take(1), Ok(()));
    }

    #[test]
    fn a_question_that_grows_when_it_is_parsed_is_weighed_before() {
        let callers = Callers::default();
        let maps = br#"{"":0},"#.repeat(1 << 20);
        let text = vec![b'x'; 8 << 20];
        let mut room = callers.caller(address(1)).room();
        assert_eq!(room.take_parsed(&maps), Err(Full));
        assert_eq!(callers.caller(address(2)).room().take_parsed(&text), Ok(()));
    }
}
