//! The server for metrics and probes, over real sockets.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::runtime::inbound;

/// Longer than the server's timeouts.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(inbound::serve(
        listener,
        None,
        routes(Arc::default()),
        inbound::Connections::default(),
    ));
    address
}

/// A connection from the loopback address 127.0.0.HOST.
async fn connect(server: SocketAddr, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let local = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket.bind(local).expect("a loopback address");
    socket.connect(server).await.expect("a connection")
}

async fn get(server: SocketAddr, host: u8, path: &str) -> String {
    let mut stream = connect(server, host).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut response = String::new();
    // A refused connection ends without a response.
    let _ = stream.read_to_string(&mut response).await;
    response
}

/// Whether the server closes a connection on which nothing more is sent.
async fn is_closed(mut stream: TcpStream) -> bool {
    let end = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|it| it > 0) {} };
    timeout(TEST_TIMEOUT, end).await.is_ok()
}

#[tokio::test]
async fn a_probe_gets_a_response_while_other_callers_hold_all_connections() {
    let server = serve().await;
    let silent = join_all((0..400).map(|number| connect(server, 2 + (number % 10) as u8)));
    let _silent = silent.await;
    let response = timeout(Duration::from_secs(4), get(server, 100, "/healthz")).await;
    let response = response.expect("a response before the kubelet's timeout");
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

#[tokio::test]
async fn the_connections_of_one_address_are_limited() {
    let server = serve().await;
    let streams = join_all((0..40).map(|_| connect(server, 2))).await;
    let mut refused = 0;
    for stream in &streams {
        let closed = timeout(Duration::from_millis(50), stream.readable()).await.is_ok();
        refused += usize::from(closed);
    }
    assert_eq!(refused, 8);
}

#[tokio::test]
async fn connections_without_a_complete_request_are_closed() {
    let server = serve().await;
    let silent = connect(server, 2).await;
    let mut slow = connect(server, 3).await;
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n").await.expect("an incomplete request");
    let closed = tokio::join!(is_closed(silent), is_closed(slow));
    assert_eq!(closed, (true, true));
}

#[tokio::test]
async fn concurrent_scrapes_share_one_rendered_page() {
    let page = CachedPage::default();
    let count = Arc::new(AtomicUsize::new(0));
    let get = || {
        let count = Arc::clone(&count);
        page.get(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            Ok(Page::of(["page 0", "page 1", "page 2"][number]))
        })
    };
    let pages = join_all((0..20).map(|_| get())).await;
    let text = |page: &Result<Arc<Page>, fmt::Error>| page.as_ref().expect("a page").text();
    assert!(pages.iter().all(|it| text(it) == "page 0"), "{pages:?}");
    page.grow_old().await;
    assert_eq!(text(&get().await), "page 1", "after a second");
}

impl CachedPage {
    /// Makes the newest page older than a second.
    async fn grow_old(&self) {
        if let Some((rendered_at, _)) = &mut self.0.lock().await.newest {
            *rendered_at = Instant::now().checked_sub(PAGE_LIFETIME).expect("a time");
        }
    }
}

/// Callers that read slowly or not at all must not make the operator keep more and more pages, nor keep others from
/// the metrics.
#[tokio::test]
async fn a_scrape_gets_a_page_however_many_are_being_sent() {
    let page = CachedPage::default();
    let text: &'static str = Box::leak("x".repeat(MAX_PAGES / 4).into_boxed_str());
    let mut sent = Vec::new();
    for _ in 0..20 {
        sent.push(page.get(move || Ok(Page::of(text))).await.expect("a page"));
        page.grow_old().await;
    }
    let distinct: BTreeSet<_> = sent.iter().map(Arc::as_ptr).collect();
    assert_eq!(distinct.len(), 4);
    sent.clear();
    let again = page.get(|| Ok(Page::of("new"))).await.expect("a page");
    assert_eq!(again.text(), "new");
}
