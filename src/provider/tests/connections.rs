//! Servers that accept and never read, or send without end before they respond.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio_rustls::TlsAcceptor;

use super::*;
use gamekeeper_core::api::HookPhase::{Error, Successful};

/// What a server does once the connection is open.
#[derive(Clone, Copy, PartialEq)]
enum Deed {
    /// Reads nothing for this time, and then everything.
    NeverReads(Duration),
    /// Sends this again and again.
    Floods(&'static [u8]),
    /// Sends a head, and then this again and again.
    FloodsWithResponse(&'static [u8]),
}

/// More than a call may receive and the buffers of the kernel hold, in bytes.
const MAX_FLOODED: usize = 64 << 20;

/// Settings, without which a client does not accept other frames.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

struct Hostile {
    url: String,
    /// How each connection ended: the bytes that were read at last, and the error.
    ends: Arc<Mutex<Vec<String>>>,
    /// How many bytes of floods the kernel has accepted, most of which the client has read.
    flooded: Arc<AtomicUsize>,
}

impl Hostile {
    /// Starts a server with a small receive buffer. With `http2`, it uses TLS.
    async fn start(deed: Deed, http2: bool) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4_096).expect("a size");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let listener = socket.listen(64).expect("a listener");
        let scheme = if http2 { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let ends: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = Arc::clone(&ends);
        let flooded = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&flooded);
        let acceptor = acceptor();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (recorded, acceptor) = (Arc::clone(&recorded), acceptor.clone());
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let end = match http2 {
                        true => match acceptor.accept(stream).await {
                            Ok(stream) => act(stream, deed, SETTINGS, &counted).await,
                            Err(error) => error.to_string(),
                        },
                        false => act(stream, deed, b"", &counted).await,
                    };
                    recorded.lock().expect("ends").push(end);
                });
            }
        });
        Hostile { url, ends, flooded }
    }
}

impl Hostile {
    /// Returns once the server could send more than [`MAX_FLOODED`].
    async fn has_flooded(&self) {
        while self.flooded.load(Ordering::Relaxed) < MAX_FLOODED {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn act(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    deed: Deed,
    hello: &[u8],
    flooded: &AtomicUsize,
) -> String {
    let _ = stream.write_all(hello).await;
    if !matches!(deed, Deed::NeverReads(_)) {
        // The beginning of the request: hyper accepts nothing before that.
        let _ = stream.read(&mut [0; 1_024]).await;
    }
    let flood = match deed {
        Deed::NeverReads(time) => {
            tokio::time::sleep(time).await;
            let mut received = Vec::new();
            let end = stream.read_to_end(&mut received).await;
            return format!("{} bytes, {:?}", received.len(), end.map_err(|it| it.kind()));
        }
        Deed::Floods(flood) => flood,
        Deed::FloodsWithResponse(flood) => {
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let _ = stream.write_all(head).await;
            flood
        }
    };
    let flood = flood.repeat(1_000);
    while stream.write_all(&flood).await.is_ok() {
        flooded.fetch_add(flood.len(), Ordering::Relaxed);
    }
    "closed".to_owned()
}

fn acceptor() -> TlsAcceptor {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(pair.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    let chain = vec![pair.cert.der().clone()];
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).expect("a pair");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Posts a long body.
async fn post(probe: &Probe, url: &str, timeout: u64) -> Outcome {
    let web = json!({
        "url": url, "method": "POST", "body": "x".repeat(1_000_000), "timeoutSeconds": timeout,
        "insecure": true,
    });
    let spec = HookRunSpec { metrics: vec![metric(web, json!({}))], ..HookRunSpec::default() };
    let call = Call { run: Arc::new(HookRun::new("run", spec)), metric: 0, number: 1, job: None };
    probe.measure(&call).await
}

async fn until(event: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(event);
}

/// The memory of a connection that outlives its call is counted by no permit.
#[tokio::test]
async fn a_server_that_never_reads_keeps_nothing_of_a_call() {
    for http2 in [false, true] {
        let server = Hostile::start(Deed::NeverReads(Duration::from_secs(3)), http2).await;
        let probe = Probe::new(HERE, None).expect("a probe");
        let outcome = post(&probe, &server.url, 1).await;
        let message = outcome.message.unwrap_or_default();
        assert!(message.ends_with("within 1 s"), "{message}");
        until("the permits are released", || {
            probe.limits.calls.taken() + probe.limits.long.taken() == 0
        })
        .await;
        // When the server reads at last, the kernel has discarded what it had not read.
        until("the connection has ended", || !server.ends.lock().expect("ends").is_empty()).await;
        let end = server.ends.lock().expect("ends")[0].clone();
        assert!(end.ends_with("Err(ConnectionReset)"), "http2 {http2}: {end}");
    }
}

#[tokio::test]
async fn what_a_server_sends_is_bounded() {
    let early = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";
    let before = "the server sent more than 256 KiB before its response";
    for (deed, http2, expected) in [
        (Deed::Floods(early), false, before),
        (Deed::Floods(PING), true, before),
        (Deed::Floods(SETTINGS), true, before),
        (
            Deed::FloodsWithResponse(b"1\r\nx\r\n"),
            false,
            "the server sent more than 4 MiB with its response",
        ),
    ] {
        let server = Hostile::start(deed, http2).await;
        let probe = Probe::new(HERE, None).expect("a probe");
        let outcome = tokio::select! {
            outcome = post(&probe, &server.url, 600) => outcome,
            () = server.has_flooded() => panic!("http2 {http2}: the server could send more"),
        };
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error, "{message}");
        assert!(message.ends_with(expected), "http2 {http2}: {message}");
    }
}

/// Whatever a server sends is read by other threads than those that renew the lease and write to the API server. Here,
/// the thread that has asked for the measurement serves nothing until the server has read the whole request.
#[tokio::test]
async fn a_call_is_served_by_threads_of_its_own() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut left: usize = 1_000_000;
        let mut buffer = [0; 65_536];
        while left > 0 {
            let read = std::io::Read::read(&mut stream, &mut buffer).expect("a request");
            left = left.saturating_sub(read);
        }
        let response = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        std::io::Write::write_all(&mut stream, response).expect("a response");
        let _ = sender.send(());
    });
    let probe = Probe::new(HERE, None).expect("a probe");
    let mut measuring = std::pin::pin!(post(&probe, &url, 60));
    assert!(futures::poll!(&mut measuring).is_pending());
    let received = received.recv_timeout(Duration::from_secs(30));
    received.expect("the request is sent without the thread that asked for it");
    assert_eq!(measuring.await.phase, Successful);
}
