//! How a call authenticates itself: basic, bearer, and OAuth2 client credentials, all from Secrets.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::byte_serialize;

use super::call_permit::CallPermit;
use super::http::{Http, HttpRequest};
use super::keys::Keys;
use super::secrets::Secrets;
use super::tls::Authorities;
use super::tokens::{TokenKey, Tokens};
use gamekeeper_core::api::{Authentication, OAuth2Authentication};

/// How long before its expiry a token is renewed.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);
/// The longest wait for a token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime that is assumed for a token if its server reports none.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(300);
/// The longest lifetime that is assumed for a token, whatever its server reports.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<u64>,
}

/// A client that requests a token, and the CAs that it trusts.
struct Client<'a> {
    id: &'a str,
    secret: &'a str,
    ca: Option<Authorities>,
}

/// What a call authenticates with.
pub(super) struct Credentials {
    pub header: HeaderValue,
    pub secrets: Secrets,
    /// The key of the token in use. The token is forgotten if the server refuses it.
    pub token: Option<TokenKey>,
}

pub(super) async fn credentials(
    authentication: &Authentication,
    keys: &Keys,
    tokens: &Tokens,
    http: &Http,
    ca: Option<Authorities>,
    permit: &mut CallPermit,
) -> Result<Credentials, String> {
    let secret = |key| {
        let value = keys.get(key);
        value.map_err(|why| format!("authentication: {why}"))
    };
    let mut secrets = Secrets::default();
    let mut token_key = None;
    let value = if let Some(basic) = &authentication.basic {
        let (user, password) = (secret(&basic.username)?, secret(&basic.password)?);
        secrets.add(password);
        basic_value(user, password)
    } else if let Some(bearer) = &authentication.bearer {
        let token = secret(&bearer.token)?;
        secrets.add(token.trim());
        format!("Bearer {}", token.trim())
    } else if let Some(oauth2) = &authentication.oauth2 {
        let (id, password) = (secret(&oauth2.client_id)?, secret(&oauth2.client_secret)?);
        secrets.add(password);
        let client = Client { id, secret: password, ca };
        let token = token(oauth2, client, tokens, http, permit).await;
        let (key, token) = token.map_err(|why| secrets.hide(format!("authentication: {why}")))?;
        secrets.add(&token);
        token_key = Some(key);
        format!("Bearer {token}")
    } else {
        return Err("authentication: write basic, bearer or oauth2".into());
    };
    secrets.add(&value);
    let mut header = HeaderValue::from_str(&value).map_err(
        |_| "authentication: a secret contains characters that are not allowed in a header",
    )?;
    header.set_sensitive(true);
    Ok(Credentials { header, secrets, token: token_key })
}

/// A valid token, with its key: a cached one, or a new one.
async fn token(
    oauth2: &OAuth2Authentication,
    client: Client<'_>,
    tokens: &Tokens,
    http: &Http,
    permit: &mut CallPermit,
) -> Result<(TokenKey, String), String> {
    let scopes = oauth2.scopes.join(" ");
    let parameters = [&oauth2.token_url, client.id, client.secret, &scopes];
    let key = TokenKey::new(permit.namespace(), &parameters)?;
    if let Some(token) = tokens.get(&key) {
        return Ok((key, token));
    }
    let granted = grant(oauth2, client, http, permit).await?;
    let lifetime = granted.expires_in.map_or(DEFAULT_TOKEN_LIFETIME, Duration::from_secs);
    let expires_at =
        Instant::now() + lifetime.min(MAX_TOKEN_LIFETIME).saturating_sub(EXPIRY_MARGIN);
    tokens.keep(&key, &granted.access_token, expires_at)?;
    Ok((key, granted.access_token))
}

/// Requests a token (RFC 6749, section 4.4).
async fn grant(
    oauth2: &OAuth2Authentication,
    Client { id, secret, ca }: Client<'_>,
    http: &Http,
    permit: &mut CallPermit,
) -> Result<Granted, String> {
    let url: Url = oauth2
        .token_url
        .parse()
        .map_err(|error| format!("tokenUrl {}: {error}", oauth2.token_url))?;
    let mut form = Url::parse("http://form/").map_err(|error| error.to_string())?;
    form.query_pairs_mut().append_pair("grant_type", "client_credentials");
    if !oauth2.scopes.is_empty() {
        form.query_pairs_mut().append_pair("scope", &oauth2.scopes.join(" "));
    }
    let mut headers = HeaderMap::new();
    let urlencoded = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, urlencoded);
    // Section 2.3.1 demands this encoding; the server decodes both.
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let basic = HeaderValue::from_str(&basic_value(&encode(id), &encode(secret)))
        .map_err(|error| error.to_string())?;
    headers.insert(AUTHORIZATION, basic);
    let mut secrets = Secrets::default();
    secrets.add(secret);
    let body = form.query().unwrap_or_default().to_owned();
    let request = HttpRequest {
        headers,
        body: body.into(),
        secrets,
        ca,
        ..HttpRequest::new(Method::POST, url, TOKEN_TIMEOUT)
    };
    let response = http.send(request, permit).await?;
    if !response.status.is_success() {
        return Err(format!("HTTP {} from {}", response.status.as_u16(), response.from));
    }
    // The body is not shown, because it may contain the token.
    serde_json::from_slice(&response.body)
        .map_err(|_| format!("{} did not answer with an access_token", response.from))
}

fn basic_value(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}
