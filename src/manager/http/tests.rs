//! Callers of the port of metrics and probes, over real sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::inbound;

/// Longer than the server waits for any caller.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

async fn served() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(inbound::serve(listener, None, routes(Arc::default())));
    address
}

/// A connection from such a loopback address.
async fn connected(server: SocketAddr, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let local = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket.bind(local).expect("a loopback address");
    socket.connect(server).await.expect("a connection")
}

async fn asked(server: SocketAddr, host: u8, path: &str) -> String {
    let mut stream = connected(server, host).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("a request");
    let mut answer = String::new();
    // A refused connection ends without an answer.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

/// Whether the server ends a connection on which nothing more is said.
async fn is_ended(mut stream: TcpStream) -> bool {
    let end = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|it| it > 0) {} };
    timeout(TEST_TIMEOUT, end).await.is_ok()
}

#[tokio::test]
async fn probes_are_answered_while_others_hold_all_the_connections_that_they_can() {
    let server = served().await;
    let silent = join_all((0..400).map(|number| connected(server, 2 + (number % 10) as u8)));
    let _silent = silent.await;
    let answer = timeout(Duration::from_secs(4), asked(server, 100, "/healthz")).await;
    let answer = answer.expect("an answer before a kubelet gives up");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn one_address_has_no_more_than_its_share_of_connections() {
    let server = served().await;
    let streams = join_all((0..40).map(|_| connected(server, 2))).await;
    let mut refused = 0;
    for stream in &streams {
        let closed = timeout(Duration::from_millis(50), stream.readable())
            .await
            .is_ok();
        refused += usize::from(closed);
    }
    assert_eq!(refused, 8);
}

#[tokio::test]
async fn who_is_silent_or_never_ends_a_request_is_cut_off() {
    let server = served().await;
    let silent = connected(server, 2).await;
    let mut slow = connected(server, 3).await;
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        .await
        .expect("the beginning");
    let ended = tokio::join!(is_ended(silent), is_ended(slow));
    assert_eq!(ended, (true, true));
}

#[tokio::test]
async fn a_page_is_rendered_once_for_all_who_ask_at_a_time() {
    let page = Page::default();
    let rendered = Arc::new(AtomicUsize::new(0));
    let ask = || {
        let rendered = Arc::clone(&rendered);
        page.of(move || {
            let number = rendered.fetch_add(1, Ordering::SeqCst);
            Ok(format!("page {number}"))
        })
    };
    let pages = join_all((0..20).map(|_| ask())).await;
    let first: Arc<str> = "page 0".into();
    assert!(
        pages.iter().all(|page| page.as_ref() == Ok(&first)),
        "{pages:?}"
    );
    if let Some((at, _)) = &mut *page.0.lock().await {
        *at = Instant::now().checked_sub(PAGE_LIFETIME).expect("a moment");
    }
    assert_eq!(ask().await, Ok("page 1".into()), "after a second");
}
