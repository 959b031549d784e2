//! Who may use the server: the browser that was given the one-time token, on this very address.
//!
//! Other programs on this machine can connect to the port, and other sites can make a browser send requests to it. A
//! request therefore needs the session's cookie; its Host must be the loopback address, or a name that was made to
//! resolve to it (DNS rebinding) would be served; and its Origin must not be another site.

use std::fs::File;
use std::io::Read;
use std::sync::Mutex;

use axum::http::{HeaderMap, HeaderName, Method, header};

/// The checks of requests.
pub struct Gate {
    /// Taken by the first browser that brings it.
    one_time: Mutex<Option<String>>,
    token: String,
    secret: String,
    port: u16,
}

/// Why a request is refused, as a message for the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

impl Gate {
    /// A gate with new secrets, for a server on this port.
    pub fn new(port: u16) -> std::io::Result<Self> {
        let (token, secret) = (random()?, random()?);
        Ok(Gate { one_time: Mutex::new(Some(token.clone())), token, secret, port })
    }

    /// The token of the first address.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Exchanges the one-time token for the session's cookie.
    pub fn enter(&self, token: &str) -> Result<String, Refused> {
        let mut one_time = self.one_time.lock().map_err(|_| Refused("the server has failed"))?;
        match one_time.as_deref() {
            Some(expected) if is_same(expected, token) => {
                *one_time = None;
                // Cookies are shared by all ports of a host, so the name has the port.
                Ok(format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie(), self.secret))
            }
            Some(_) => Err(Refused("the token in the address is wrong")),
            None => Err(Refused("the address was used before, and works only once")),
        }
    }

    /// Whether the request has the session's cookie.
    pub fn knows(&self, headers: &HeaderMap) -> bool {
        cookie(headers, &self.cookie()).is_some_and(|value| is_same(&self.secret, value))
    }

    /// Refuses requests to another host, and those that another site makes a browser send.
    pub fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refused> {
        let hosts = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{}", self.port));
        let host = text(headers, &header::HOST).unwrap_or_default();
        if !hosts.iter().any(|own| own == host) {
            return Err(Refused("the request is for another host"));
        }
        if text(headers, &header::ORIGIN).is_some_and(|it| it.starts_with("https:")) {
            return Err(Refused("the request comes from another site"));
        }
        check_site(method, headers)
    }

    fn cookie(&self) -> String {
        format!("gamekeeper-view-{}", self.port)
    }
}

/// Refuses requests that another site makes a browser send.
pub fn check_site(method: &Method, headers: &HeaderMap) -> Result<(), Refused> {
    let host = text(headers, &header::HOST).unwrap_or_default();
    let is_own = text(headers, &header::ORIGIN)
        .map(|origin| origin.split_once("://").is_some_and(|(_, from)| from == host));
    let is_safe = matches!(*method, Method::GET | Method::HEAD);
    if is_own == Some(false) || !is_safe && is_own.is_none() {
        return Err(Refused("the request comes from another site"));
    }
    // A link on another site may lead to the page, which then loads everything else itself.
    let is_link = is_safe && text(headers, &FETCH_MODE) == Some("navigate");
    match text(headers, &FETCH_SITE) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if is_link => Ok(()),
        Some(_) => Err(Refused("the request comes from another site")),
    }
}

/// The value of a cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|it| it.to_str().unwrap_or("?"))
}

/// Compares secrets in a time that does not depend on where they differ.
fn is_same(expected: &str, found: &str) -> bool {
    let pairs = expected.bytes().zip(found.bytes());
    expected.len() == found.len() && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// 32 random bytes in hexadecimal digits.
fn random() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_token_is_exchanged_once() {
        let gate = Gate::new(80).expect("random bytes");
        let token = gate.token().to_owned();
        for wrong in ["", "x", &token[1..], &format!("{token}0")] {
            assert_eq!(gate.enter(wrong), Err(Refused("the token in the address is wrong")));
        }
        let cookie = gate.enter(&token).expect("the right token");
        let (pair, attributes) = cookie.split_once(';').expect("attributes");
        assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Strict");
        assert!(gate.knows(&headers(&[("cookie", &format!("other=1; {pair}"))])));
        assert!(!gate.knows(&headers(&[("cookie", &pair[..pair.len() - 1])])));
        assert!(!gate.knows(&headers(&[("cookie", &format!("gamekeeper-view-80={token}"))])));
        assert!(!gate.knows(&headers(&[])));
        assert!(gate.enter(&token).is_err(), "a replayed token is accepted");
    }

    #[test]
    fn other_hosts_and_other_sites_are_refused() {
        let gate = Gate::new(8000).expect("random bytes");
        let host = ("host", "127.0.0.1:8000");
        let own = ("origin", "http://127.0.0.1:8000");
        let link = ("sec-fetch-mode", "navigate");
        let cross = ("sec-fetch-site", "cross-site");
        for (method, pairs, is_allowed) in [
            (Method::GET, &[host][..], true),
            (Method::GET, &[("host", "localhost:8000")], true),
            (Method::GET, &[], false),
            (Method::GET, &[("host", "127.0.0.1")], false),
            (Method::GET, &[("host", "127.0.0.1:8001")], false),
            (Method::GET, &[("host", "game.example:8000")], false),
            (Method::GET, &[host, own], true),
            (Method::GET, &[host, ("origin", "http://localhost:8000")], false),
            (Method::GET, &[host, ("origin", "null")], false),
            (Method::GET, &[host, ("origin", "https://127.0.0.1:8000")], false),
            (Method::GET, &[host, ("origin", "http://127.0.0.1:8001")], false),
            (Method::GET, &[host, cross], false),
            (Method::GET, &[host, ("sec-fetch-site", "same-site")], false),
            (Method::GET, &[host, cross, link], true),
            (Method::POST, &[host], false),
            (Method::POST, &[host, own], true),
            (Method::POST, &[host, own, cross, link], false),
            (Method::POST, &[host, ("origin", "https://game.example")], false),
        ] {
            let checked = gate.check_origin(&method, &headers(pairs));
            assert_eq!(checked.is_ok(), is_allowed, "{method} {pairs:?}");
        }
    }
}
