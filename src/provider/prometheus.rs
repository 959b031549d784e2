//! Prometheus metrics: a query and its result.
//!
//! In conditions, `result` is a float if the query returns a scalar. For an instant vector it is the list of the
//! vector's values, and for a range vector the list of the values of all series, in order. If the query returned NaN or
//! nothing, the outcome's message says so.

use std::time::Duration;

use http::Method;
use http::header::HeaderMap;
use serde::Deserialize;
use url::Url;

use super::call_permit::CallPermit;
use super::filling::Filling;
use super::http::{HttpRequest, HttpResponse, millis};
use super::judge::Conditions;
use super::measure::{Measurement, Trust};
use super::web;
use gamekeeper_core::api::PrometheusMetric;
use gamekeeper_core::expr::{Subject, brief};
use gamekeeper_core::plan::hook_run::Outcome;

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
    let assess = move |response: &HttpResponse| assess(response, &conditions);
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
    url.set_path(&format!(
        "{}/api/v1/query",
        url.path().trim_end_matches('/')
    ));
    url.query_pairs_mut().append_pair("query", &query);
    let mut headers = HeaderMap::new();
    for header in &prometheus.headers {
        headers.extend([web::header(&header.key, &header.value, filling)?]);
    }
    let seconds = prometheus
        .timeout_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let timeout = Duration::from_secs(seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_TIMEOUT));
    let insecure = prometheus.insecure;
    Ok(HttpRequest {
        headers,
        insecure,
        ..HttpRequest::new(Method::GET, url, timeout)
    })
}

/// The envelope of Prometheus' responses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    data: Option<Found>,
    error: Option<String>,
}

/// A time and a value. The value is text, because JSON has no NaN.
type Sample = (f64, String);

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Found {
    Scalar(Sample),
    Vector(Vec<Instant>),
    Matrix(Vec<Range>),
    String(Sample),
}

#[derive(Deserialize)]
struct Instant {
    value: Sample,
}

#[derive(Deserialize)]
struct Range {
    values: Vec<Sample>,
}

/// Judges a response. Must run on the evaluation pool.
fn assess(response: &HttpResponse, conditions: &Conditions) -> Outcome {
    let errored = |why: &str| {
        let HttpResponse {
            status,
            from,
            elapsed,
            ..
        } = response;
        Outcome::error(format!(
            "HTTP {} from {from} in {}: {why}",
            status.as_u16(),
            millis(*elapsed)
        ))
    };
    let text = String::from_utf8_lossy(&response.body);
    let Ok(envelope) = serde_json::from_slice::<Envelope>(&response.body) else {
        return errored(&format!(
            "unexpected response from Prometheus: {}",
            brief(text.trim())
        ));
    };
    let found = match (envelope.error, envelope.data) {
        (Some(error), _) => return errored(&brief(&error)),
        (None, Some(found)) if response.status.is_success() => found,
        _ => return errored(&brief(text.trim())),
    };
    match values(found) {
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
        Err(text) => errored(&format!(
            "the query returned {}: use one that returns numbers",
            brief(&text)
        )),
    }
}

enum Values {
    One(f64),
    Many(Vec<f64>),
}

/// The numbers in a result. The error is a text in it that is not a number.
fn values(found: Found) -> Result<Values, String> {
    let number = |(_, text): Sample| text.parse::<f64>().map_err(|_| text);
    match found {
        Found::Scalar(sample) => number(sample).map(Values::One),
        Found::Vector(series) => {
            let numbers = series.into_iter().map(|series| number(series.value));
            numbers.collect::<Result<_, _>>().map(Values::Many)
        }
        Found::Matrix(series) => {
            let samples = series.into_iter().flat_map(|series| series.values);
            samples
                .map(number)
                .collect::<Result<_, _>>()
                .map(Values::Many)
        }
        Found::String((_, text)) => Err(text),
    }
}
