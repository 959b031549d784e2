//! Prometheus metrics: a query and its result.
//!
//! In conditions, `result` is a float if the query returns a scalar. For an instant vector it is the list of the
//! vector's values, and for a range vector the list of the values of all series, in order. If the query returned NaN or
//! nothing, the outcome's message says so.

use std::time::Duration;

use http::Method;
use http::header::HeaderMap;
use url::Url;

use super::call_permit::CallPermit;
use super::filling::Filling;
use super::http::{HttpRequest, HttpResponse, millis};
use super::judge::Conditions;
use super::measure::{Measurement, Trust};
use super::query_result::{QueryResult, Values};
use super::web;
use gamekeeper_core::api::PrometheusMetric;
use gamekeeper_core::expr::{JsonFault, Subject, brief, without_mark};
use gamekeeper_core::hook_run::Outcome;

/// How long Prometheus may take to respond, in seconds, unless the metric sets a timeout.
const DEFAULT_TIMEOUT: u64 = 30;

/// Sends the query and judges its result.
pub(super) async fn measure(
    measurement: &Measurement,
    prometheus: &PrometheusMetric,
    mut permit: CallPermit,
) -> Outcome {
    let request = match measurement.filled(&mut permit, request).await {
        Ok(request) => request,
        Err(why) => return Outcome::error(why),
    };
    let conditions = Conditions::of(measurement.metric());
    let accept_partial = prometheus.accept_partial;
    let assess = move |response: &HttpResponse| assess(response, &conditions, accept_partial);
    let trust = Trust {
        authentication: prometheus.authentication.as_deref(),
        ca: prometheus.ca_secret.as_ref(),
    };
    measurement.send(request, trust, permit, assess).await
}

fn request(measurement: &Measurement, filling: &mut Filling<'_>) -> Result<HttpRequest, String> {
    let prometheus = measurement.metric().provider.prometheus.as_ref();
    let prometheus = prometheus.ok_or("no prometheus metric")?;
    let address = filling.url("address", &prometheus.address)?;
    let mut url: Url = address
        .trim()
        .parse()
        .map_err(|error| format!("address {}: {error}", prometheus.address))?;
    let query = filling.text("query", &prometheus.query)?;
    url.set_path(&format!("{}/api/v1/query", url.path().trim_end_matches('/')));
    url.query_pairs_mut().append_pair("query", &query);
    let mut headers = HeaderMap::new();
    for header in &prometheus.headers {
        headers.extend([web::header(&header.key, &header.value, filling)?]);
    }
    let seconds = prometheus.timeout_seconds.or(prometheus.timeout);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let timeout = Duration::from_secs(seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_TIMEOUT));
    let insecure = prometheus.insecure;
    Ok(HttpRequest { headers, insecure, ..HttpRequest::new(Method::GET, url, timeout) })
}

/// Judges a response. Must run on the evaluation pool.
fn assess(response: &HttpResponse, conditions: &Conditions, accept_partial: bool) -> Outcome {
    let errored = |why: &str| {
        let HttpResponse { status, from, elapsed, .. } = response;
        Outcome::error(format!(
            "HTTP {} from {from} in {}: {why}",
            status.as_u16(),
            millis(*elapsed)
        ))
    };
    let text = String::from_utf8_lossy(&response.body);
    let body = match without_mark(&response.body) {
        Ok(body) => String::from_utf8_lossy(body),
        Err(error) => return errored(&error.to_string()),
    };
    // Labels may be in another encoding; no number can be.
    let result: QueryResult = match serde_json::from_str(&body) {
        Ok(result) => result,
        Err(error) => return errored(&unexpected(response, &error)),
    };
    if let Some(error) = result.error() {
        return errored(&error);
    }
    if !response.status.is_success() {
        return errored(&brief(text.trim()));
    }
    if let Some(why) = result.failure() {
        return errored(&why);
    }
    if !accept_partial && let Some(why) = result.why_partial(response.status) {
        return errored(&format!(
            "the result may be incomplete, because {why}; to use it nevertheless, set acceptPartial"
        ));
    }
    match result.values() {
        Ok(Values::One(number)) => {
            let note = number.is_nan().then_some("the query returned NaN");
            conditions.judge(&Subject::number(number), note)
        }
        Ok(Values::Many(numbers)) => {
            let note = if numbers.is_empty() {
                Some("the query returned nothing")
            } else {
                let any_nan = numbers.iter().any(|number| number.is_nan());
                any_nan.then_some("the query returned NaN")
            };
            conditions.judge(&Subject::numbers(&numbers), note)
        }
        Err(text) => errored(&format!("the query returned {text}: use one that returns numbers")),
    }
}

/// Why a response is no query result.
fn unexpected(response: &HttpResponse, error: &serde_json::Error) -> String {
    let body = &response.body;
    let text = String::from_utf8_lossy(body);
    let shown = match (text.trim(), JsonFault::of(body, error)) {
        ("", _) => "it is empty".to_owned(),
        (text, Some(fault)) => format!("{fault}: {}", brief(text)),
        (text, None) => brief(text),
    };
    format!("unexpected response from Prometheus: {shown}")
}
