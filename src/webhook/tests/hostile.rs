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

/// Longer than the server's timeouts.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running webhook.
struct Webhook {
    address: String,
    bundle: String,
}

impl Webhook {
    async fn start() -> Self {
        Self::start_with(unused_client()).await
    }

    /// A webhook that makes dry runs with this client.
    async fn start_with(client: Client) -> Self {
        let certificate = Arc::new(ServingCertificate::default());
        let metrics = AdmissionMetrics::default();
        let address = super::start_webhook_with(&certificate, metrics, client).await;
        let certificates = new_certificates(Timestamp::now());
        certificate.set(certificates.current.serving_key().expect("a key"));
        let bundle = certificates.bundle();
        Webhook { address, bundle }
    }

    /// A client that calls from the loopback address 127.0.0.HOST.
    fn client(&self, host: u8) -> reqwest::Client {
        let authority = reqwest::Certificate::from_pem(self.bundle.as_bytes());
        let client = reqwest::Client::builder()
            .tls_certs_only([authority.expect("an authority")])
            .local_address(Some(Ipv4Addr::new(127, 0, 0, host).into()))
            .no_proxy();
        client.build().expect("a client")
    }

    fn port(&self) -> u16 {
        let port = self.address.rsplit(':').next();
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    /// A connection from the loopback address 127.0.0.HOST after its TLS handshake; None if it is refused.
    async fn connect(&self, host: u8, protocols: &[&[u8]]) -> Option<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.bundle.as_bytes());
        roots.add(authority.expect("PEM")).expect("an authority");
        let mut tls =
            rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
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

    /// Fails unless a review gets a response.
    async fn assert_served(&self) {
        let review =
            json!({"request": {"uid": "7", "operation": "CREATE", "object": template(GOOD)}});
        let response = post(&self.address, &self.bundle, &review);
        let response = timeout(TEST_TIMEOUT, response).await.expect("in time");
        let (status, body) = response.expect("a response");
        assert_eq!((status, &body["response"]["allowed"]), (200, &json!(true)));
    }
}

#[tokio::test]
async fn connections_that_are_silent_after_the_handshake_are_closed() {
    let webhook = Webhook::start().await;
    let protocols: [&[&[u8]]; 3] = [&[b"h2"], &[b"http/1.1"], &[]];
    let closed = join_all(protocols.map(async |protocols| {
        let mut stream = webhook.connect(2, protocols).await.expect("TLS");
        let end = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|it| it > 0) {} };
        timeout(TEST_TIMEOUT, end).await.is_ok()
    }));
    assert_eq!(closed.await, [true; 3], "{protocols:?}");
}

#[tokio::test]
async fn reviews_get_responses_while_silent_callers_hold_all_their_connections() {
    let webhook = Webhook::start().await;
    let hosts = (2..12).flat_map(|host| [host; 32]);
    let held = stream::iter(hosts)
        .map(|host| timeout(Duration::from_secs(10), webhook.connect(host, &[])));
    let held: Vec<_> = held.buffer_unordered(16).collect().await;
    let held_count = held.into_iter().flatten().flatten().count();
    assert!(held_count >= 100, "only {held_count} connections");
    webhook.assert_served().await;
}

#[tokio::test]
async fn excess_connections_of_one_caller_are_refused_and_other_callers_are_served() {
    let webhook = Webhook::start().await;
    let streams = join_all((0..40).map(|_| webhook.connect(2, &[]))).await;
    assert_eq!(streams.iter().flatten().count(), 32);
    let started = std::time::Instant::now();
    webhook.assert_served().await;
    assert!(started.elapsed() < Duration::from_secs(4), "the review waited");
}

#[tokio::test]
async fn large_slow_requests_are_refused_or_time_out() {
    let webhook = Webhook::start().await;
    let client = webhook.client(2);
    let chunk = vec![b' '; 64 << 10];
    let slow = || {
        let start = stream::iter(std::iter::repeat_n(chunk.clone(), 7 * 16));
        let body = start.chain(stream::pending()).map(Ok::<_, std::io::Error>);
        let request = client.post(format!("{}/validate", webhook.address));
        let sent = request.body(reqwest::Body::wrap_stream(body)).send();
        async { sent.await.expect("a response").status().as_u16() }
    };
    let slow = async {
        let requests = (0..20).map(|_| slow());
        timeout(TEST_TIMEOUT, join_all(requests)).await.expect("responses to all")
    };
    let (statuses, ()) = tokio::join!(slow, webhook.assert_served());
    let refused = statuses.iter().filter(|status| **status == 503).count();
    let timed_out = statuses.iter().filter(|status| **status == 408).count();
    // How many requests get which status depends on the machine; callers.rs tests the exact limit.
    assert_eq!(refused + timed_out, 20, "{statuses:?}");
    assert!(refused > 0, "{statuses:?}");
}

/// Any pod can send reviews, each of which waits two seconds for an API server that is slow.
#[tokio::test]
async fn reviews_of_other_addresses_take_no_place_of_an_api_server() {
    let silent = service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
    });
    let webhook = Webhook::start_with(Client::new(silent, "games")).await;
    let object = json!({
        "kind": "GameDeployment", "metadata": {"name": "game"},
        "spec": {"template": {"spec": {"containers": [{"name": "game", "image": "game:v1"}]}}},
    });
    let request =
        json!({"uid": "7", "namespace": "games", "operation": "CREATE", "object": object});
    let review = json!({"request": request});
    let send = |host: u8| {
        let request = webhook.client(host).post(format!("{}/validate", webhook.address));
        request.json(&review).send()
    };
    let others: Vec<_> = (0..200).map(|number| tokio::spawn(send(2 + number % 8))).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let answer = send(99).await.expect("a response");
    assert_eq!(answer.status().as_u16(), 200);
    others.iter().for_each(tokio::task::JoinHandle::abort);
}
