//! On whose behalf requests are sent to the API server.
//!
//! In the plugin, that is the user who started it. In a cluster, it is anyone with a token: the server has no
//! permissions of its own, and keeps no token. It is in a cookie that scripts cannot read, or a proxy in front of the
//! server sets the header Authorization.

use axum::http::{HeaderMap, Method, header};
use kube::config::AuthInfo;
use kube::{Client, Config};

use super::gate::{Gate, Refused, check_site, cookie};
use super::rights::knows_visitor;
use crate::cluster::Cluster;
use crate::error::Error;

/// Whom the server serves.
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub enum Visitors {
    /// The user who started it.
    Own { cluster: Cluster, gate: Gate },
    /// Anyone with a token.
    Guests(Guests),
}

/// A server in a cluster.
pub struct Guests {
    /// Where the API server is.
    pub config: Config,
    /// Whether visitors may change something, as far as their permissions go.
    pub actions: bool,
}

const GUEST_COOKIE: &str = "gamekeeper-view";
/// Cookies of more than 4096 bytes are not kept by browsers.
const MAX_TOKEN: usize = 3800;

impl Visitors {
    /// Refuses requests that another site makes a browser send, and, on a user's machine, those to another host.
    pub fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refused> {
        match self {
            Visitors::Own { gate, .. } => gate.check_origin(method, headers),
            Visitors::Guests(_) => check_site(method, headers),
        }
    }

    /// Begins a session, and returns its cookie.
    pub async fn enter(&self, token: &str) -> Result<String, Refused> {
        match self {
            Visitors::Own { gate, .. } => gate.enter(token),
            Visitors::Guests(guests) => guests.enter(token).await,
        }
    }

    /// The cluster as the visitor sees it.
    pub fn cluster(&self, headers: &HeaderMap) -> Result<Cluster, Refused> {
        match self {
            Visitors::Own { cluster, gate } => match gate.knows(headers) {
                true => Ok(cluster.clone()),
                false => Err(Refused("there is no session")),
            },
            Visitors::Guests(guests) => {
                let token = bearer(headers).or_else(|| cookie(headers, GUEST_COOKIE));
                guests.cluster(token.ok_or(Refused("there is no token"))?)
            }
        }
    }

    /// Whether the page may change anything.
    pub fn may_act(&self) -> bool {
        match self {
            Visitors::Own { .. } => true,
            Visitors::Guests(guests) => guests.actions,
        }
    }

    /// Whether visitors bring tokens of their own.
    pub fn bring_tokens(&self) -> bool {
        matches!(self, Visitors::Guests(_))
    }
}

impl Guests {
    async fn enter(&self, token: &str) -> Result<String, Refused> {
        let token = token.trim();
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(is_token) {
            return Err(Refused("this is not a token"));
        }
        match knows_visitor(&self.cluster(token)?).await {
            Ok(()) => {
                Ok(format!("{GUEST_COOKIE}={token}; Path=/; HttpOnly; Secure; SameSite=Strict"))
            }
            Err(Error::Server(status)) if status.code == 401 => {
                Err(Refused("the API server does not accept this token"))
            }
            Err(_) => Err(Refused("the API server cannot be asked about this token")),
        }
    }

    fn cluster(&self, token: &str) -> Result<Cluster, Refused> {
        let auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        let mut config = self.config.clone();
        config.auth_info = auth_info;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config);
        Ok(Cluster::of(client.map_err(|_| Refused("this is not a token"))?, &namespace))
    }
}

/// The token that a proxy in front of the server has set.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
