//! Whether the operator is healthy at every moment: probes of /healthz, as a kubelet makes them, but all the time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use socket2::{Domain, Socket, Type};

use super::Stage;

/// The time between two probes.
const INTERVAL: Duration = Duration::from_millis(100);
/// A probe that takes longer fails.
const LIMIT: Duration = Duration::from_secs(10);
/// The address that the probes come from. Like a kubelet, it calls for no other purpose.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 251);

/// Probes in progress. They have a thread of their own, because those that play attacks are busy.
pub struct HealthProbes {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Stage {
    /// Starts to probe the operator. It must not be restarted before [`HealthProbes::slowest`].
    pub fn probe_health(&self) -> Result<HealthProbes> {
        let port = self.operator.port()?;
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let thread = std::thread::spawn(move || probe_until(&is_over, port));
        Ok(HealthProbes { ended, thread })
    }
}

impl HealthProbes {
    /// Ends the probes, and returns how long the slowest one took. Fails if one of them got no 200.
    pub fn slowest(self) -> Result<Duration> {
        self.ended.store(true, Ordering::Relaxed);
        let slowest = self.thread.join();
        slowest.map_err(|_| anyhow!("the probes panicked"))?
    }
}

fn probe_until(is_over: &AtomicBool, port: u16) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let started = Instant::now();
        probe(port).with_context(|| format!("/healthz after {:?}", started.elapsed()))?;
        slowest = slowest.max(started.elapsed());
        std::thread::sleep(INTERVAL);
    }
    Ok(slowest)
}

fn probe(port: u16) -> Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((ADDRESS, 0)).into())?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    socket.connect_timeout(&server.into(), LIMIT)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}
