//! Hostile callers, over real sockets: other callers are still served.

use std::net::{Ipv4Addr, SocketAddr};

use futures::future::join_all;
use futures::{StreamExt, stream};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// Longer than the server waits for any caller.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A webhook that is served, and whom to trust.
struct Webhook {
    address: String,
    bundle: String,
}

impl Webhook {
    async fn start() -> Self {
        let serving = Arc::new(ServingCertificate::default());
        let address = served(&serving, AdmissionMetrics::default()).await;
        let certificates = begun(Timestamp::now());
        serving.serve(certificates.current.serving_key().expect("a key"));
        let bundle = certificates.bundle();
        Webhook { address, bundle }
    }

    fn port(&self) -> u16 {
        let port = self.address.rsplit(':').next();
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    /// A connection from such a loopback address on which TLS alone was spoken; None when it is refused.
    async fn silent(&self, host: u8, protocols: &[&[u8]]) -> Option<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.bundle.as_bytes());
        roots.add(authority.expect("PEM")).expect("an authority");
        let mut tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        let socket = TcpSocket::new_v4().expect("a socket");
        let local = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        socket.bind(local).expect("a loopback address");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()));
        let stream = socket.connect(server).await.ok()?;
        let name = "localhost".try_into().expect("a name");
        let connector = TlsConnector::from(Arc::new(tls));
        connector.connect(name, stream).await.ok()
    }

    /// Asks as an API server does, and has to be answered.
    async fn is_served(&self) {
        let question =
            json!({"request": {"uid": "7", "operation": "CREATE", "object": template(GOOD)}});
        let asked = ask(&self.address, &self.bundle, &question);
        let answer = timeout(TEST_TIMEOUT, asked)
            .await
            .expect("an answer in time");
        let (status, answer) = answer.expect("an answer");
        assert_eq!(
            (status, &answer["response"]["allowed"]),
            (200, &json!(true))
        );
    }
}

#[tokio::test]
async fn who_is_silent_after_tls_is_not_waited_for() {
    let webhook = Webhook::start().await;
    let protocols: [&[&[u8]]; 3] = [&[b"h2"], &[b"http/1.1"], &[]];
    let ended = join_all(protocols.map(async |protocols| {
        let mut stream = webhook.silent(2, protocols).await.expect("TLS");
        let end = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|it| it > 0) {} };
        timeout(TEST_TIMEOUT, end).await.is_ok()
    }));
    assert_eq!(ended.await, [true; 3], "{protocols:?}");
}

#[tokio::test]
async fn silent_callers_on_every_connection_there_is_keep_nobody_out_for_long() {
    let webhook = Webhook::start().await;
    let all = (2..12).flat_map(|host| [host; 32]);
    let held =
        stream::iter(all).map(|host| timeout(Duration::from_secs(10), webhook.silent(host, &[])));
    let held: Vec<_> = held.buffer_unordered(16).collect().await;
    let held = held.into_iter().flatten().flatten().count();
    assert!(held >= 100, "only {held} connections");
    webhook.is_served().await;
}

#[tokio::test]
async fn a_caller_with_too_many_connections_is_refused_and_others_are_served() {
    let webhook = Webhook::start().await;
    let streams = join_all((0..40).map(|_| webhook.silent(2, &[]))).await;
    assert_eq!(streams.iter().flatten().count(), 32);
    let begun = std::time::Instant::now();
    webhook.is_served().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "it had to wait");
}

#[tokio::test]
async fn of_many_large_slow_questions_some_are_refused_at_once_and_none_is_waited_for() {
    let webhook = Webhook::start().await;
    let authority =
        reqwest::Certificate::from_pem(webhook.bundle.as_bytes()).expect("an authority");
    let client = reqwest::Client::builder()
        .tls_certs_only([authority])
        .local_address(Some(Ipv4Addr::new(127, 0, 0, 2).into()))
        .no_proxy()
        .build()
        .expect("a client");
    let chunk = vec![b' '; 64 << 10];
    let slow = || {
        let begun = stream::iter(std::iter::repeat_n(chunk.clone(), 7 * 16));
        let body = begun.chain(stream::pending()).map(Ok::<_, std::io::Error>);
        let request = client.post(format!("{}/validate", webhook.address));
        let sent = request.body(reqwest::Body::wrap_stream(body)).send();
        async { sent.await.expect("an answer").status().as_u16() }
    };
    let slow = async {
        let questions = (0..20).map(|_| slow());
        timeout(TEST_TIMEOUT, join_all(questions))
            .await
            .expect("all are answered")
    };
    let (statuses, ()) = tokio::join!(slow, webhook.is_served());
    let refused = statuses.iter().filter(|status| **status == 503).count();
    let late = statuses.iter().filter(|status| **status == 408).count();
    // How many come before the memory is full depends on the machine; callers.rs has the exact bound.
    assert_eq!(refused + late, 20, "{statuses:?}");
    assert!(refused > 0, "{statuses:?}");
}
