//! Web metrics: an HTTP call and its response.
//!
//! Only a 2xx response can be a success. Any other response is an error, because a broken endpoint says nothing
//! about the game.

use std::time::Duration;

use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::call_permit::CallPermit;
use super::filling::Filling;
use super::http::{HttpRequest, HttpResponse, millis};
use super::judge::Conditions;
use super::measure::{Measurement, Trust};
use gamekeeper_core::api::{WebMethod, WebMetric};
use gamekeeper_core::expr::jsonpath::JsonPath;
use gamekeeper_core::expr::{Document, DocumentError, brief};
use gamekeeper_core::hook_run::{Outcome, Place};

/// The header that distinguishes a repeated call from a new one.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const DEFAULT_TIMEOUT: u64 = 10;

/// Makes the call of a web metric and judges its response.
pub(super) async fn measure(
    measurement: &Measurement,
    web: &WebMetric,
    mut permit: CallPermit,
) -> Outcome {
    let request = match measurement.filled(&mut permit, request).await {
        Ok(request) => request,
        Err(why) => return Outcome::error(why),
    };
    let path = web.json_path.clone().unwrap_or_default();
    let conditions = Conditions::of(measurement.metric());
    let assess = move |response: &HttpResponse| assess(response, &path, &conditions);
    let trust = Trust { authentication: web.authentication.as_deref(), ca: web.ca_secret.as_ref() };
    measurement.send(request, trust, permit, assess).await
}

fn request(measurement: &Measurement, filling: &mut Filling<'_>) -> Result<HttpRequest, String> {
    let web = measurement.metric().provider.web.as_ref().ok_or("no web metric")?;
    let url = filling.url("url", &web.url)?;
    let url: Url = url.trim().parse().map_err(|error| format!("url {}: {error}", web.url))?;
    let (body, content_type) = body(web, filling)?;
    let mut headers = HeaderMap::new();
    headers.extend(content_type.map(|content_type| (CONTENT_TYPE, content_type)));
    for header in &web.headers {
        let (name, value) = self::header(&header.key, &header.value, filling)?;
        headers.insert(name, value);
    }
    let key =
        HeaderValue::from_str(&measurement.idempotency_key()).map_err(|error| error.to_string())?;
    headers.insert(IDEMPOTENCY_KEY, key);
    let method = match web.method {
        WebMethod::GET => Method::GET,
        WebMethod::POST => Method::POST,
        WebMethod::PUT => Method::PUT,
    };
    let seconds = web.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let timeout = Duration::from_secs(seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_TIMEOUT));
    let insecure = web.insecure;
    Ok(HttpRequest {
        headers,
        body: body.into(),
        insecure,
        ..HttpRequest::new(method, url, timeout)
    })
}

fn body(
    web: &WebMetric,
    filling: &mut Filling<'_>,
) -> Result<(String, Option<HeaderValue>), String> {
    if let Some(json) = &web.json_body {
        let filled = filling.json("jsonBody", json, Place::Filled)?;
        let content_type = HeaderValue::from_static("application/json");
        return Ok((filled, Some(content_type)));
    }
    let body = web.body.as_deref().unwrap_or_default();
    Ok((filling.text("body", body)?, None))
}

/// A header, with arguments filled into its value.
pub(super) fn header(
    key: &str,
    value: &str,
    filling: &mut Filling<'_>,
) -> Result<(HeaderName, HeaderValue), String> {
    let name = key.parse().map_err(|_| format!("header {key:?} is not a header name"))?;
    let filled = filling.text(&format!("header {key}"), value)?;
    // The value is not shown, because it may contain a secret.
    let value = HeaderValue::from_str(&filled).map_err(|_| {
        format!("header {key}: its value contains characters that are not allowed in a header")
    })?;
    Ok((name, value))
}

/// Judges a response. Must run on the evaluation pool.
pub(super) fn assess(response: &HttpResponse, path: &str, conditions: &Conditions) -> Outcome {
    let head = format!(
        "HTTP {} from {} in {}",
        response.status.as_u16(),
        response.from,
        millis(response.elapsed)
    );
    let message = |why: &str| match why {
        "" => head.clone(),
        why => format!("{head}: {why}"),
    };
    if !response.status.is_success() {
        let text = String::from_utf8_lossy(&response.body);
        let text = brief(text.trim());
        return Outcome::error(message(&text));
    }
    match judge(&response.body, path, conditions) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::error(message(&error.to_string())),
    }
}

/// Selects from a body and judges what is selected.
fn judge(body: &[u8], path: &str, conditions: &Conditions) -> Result<Outcome, DocumentError> {
    let path = match path.trim() {
        "" => None,
        path => Some(JsonPath::parse(path)?),
    };
    let document = match Document::read(body) {
        Err(DocumentError::OtherEncoding(_) | DocumentError::Compressed(_))
            if path.is_none() && conditions.is_empty() =>
        {
            Document::unread(body)
        }
        document => document?,
    };
    let subject = document.subject(path.as_ref(), !conditions.is_empty())?;
    Ok(conditions.judge(&subject, None))
}
