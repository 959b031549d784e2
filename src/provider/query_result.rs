//! The response of a Prometheus-compatible server to a query.
//!
//! Some servers answer with what they have when a part of their data cannot be reached, in several ways: VictoriaMetrics
//! sets `isPartial`; Prometheus, Thanos, Mimir, Cortex and M3 list `warnings`. Players might be on a server that is
//! missing from such an answer, so it is not taken for a complete one.

use std::fmt;

use gamekeeper_core::expr::brief;
use http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Prefix of what Prometheus before version 3 lists among the warnings although it only informs.
const INFORMATION: &str = "PromQL info";

/// The envelope of a result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueryResult {
    #[serde(default)]
    status: Option<String>,
    data: Option<Found>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    warnings: Remark,
    #[serde(default)]
    is_partial: Remark,
    #[serde(default)]
    partial: Remark,
}

/// A time and a value.
type Sample = (IgnoredAny, Number);

/// A value. It is text, because JSON has no NaN; but some servers write numbers.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Text(String),
    Number(serde_json::Number),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Text(text) => f.write_str(text),
            Number::Number(number) => number.fmt(f),
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
pub(super) enum Found {
    Scalar(Sample),
    Vector(Vec<Series>),
    Matrix(Vec<Series>),
    String(Sample),
}

/// A time series of a vector, with one value, or of a matrix.
#[derive(Deserialize)]
pub(super) struct Series {
    value: Option<Sample>,
    #[serde(default)]
    values: Vec<Sample>,
    histogram: Option<IgnoredAny>,
    histograms: Option<IgnoredAny>,
}

/// What a result contains.
pub(super) enum Values {
    One(f64),
    Many(Vec<f64>),
}

impl QueryResult {
    /// The error that the server reports. An empty text is none.
    pub(super) fn error(&self) -> Option<String> {
        let texts = [&self.error, &self.error_type];
        let error = texts.into_iter().flatten().find(|it| !it.trim().is_empty());
        error.map(|error| brief(error))
    }

    /// Why there is no result although the server reports no error; None if there is one.
    pub(super) fn failure(&self) -> Option<String> {
        match (self.status.as_deref(), &self.data) {
            (Some("success"), Some(_)) => None,
            (Some("success"), None) => Some("the response has no data".to_owned()),
            (Some(status), _) => Some(format!("its status is {}, not success", brief(status))),
            (None, _) => Some("the response has no status".to_owned()),
        }
    }

    /// Why the result may be incomplete; None if it is complete.
    pub(super) fn why_partial(&self, status: StatusCode) -> Option<String> {
        if let Some(warning) = &self.warnings.0 {
            return Some(format!("it has a warning: {}", brief(warning)));
        }
        if self.is_partial.0.is_some() {
            return Some("isPartial is true".to_owned());
        }
        if self.partial.0.is_some() {
            return Some("partial is true".to_owned());
        }
        let is_partial = status == StatusCode::PARTIAL_CONTENT;
        is_partial.then(|| "its HTTP status is 206".to_owned())
    }

    /// The numbers in the result. The error is something in it that is not a number.
    pub(super) fn values(self) -> Result<Values, String> {
        let number = |(_, value): Sample| {
            let text = value.to_string();
            text.parse::<f64>().map_err(|_| brief(&text))
        };
        match self.data {
            None => Ok(Values::Many(Vec::new())),
            Some(Found::Scalar(sample)) => number(sample).map(Values::One),
            Some(Found::Vector(series) | Found::Matrix(series)) => {
                let mut numbers = Vec::new();
                for Series { value, values, histogram, histograms } in series {
                    if histogram.is_some() || histograms.is_some() {
                        return Err("a native histogram".to_owned());
                    }
                    if value.is_none() && values.is_empty() {
                        return Err("a series without a value".to_owned());
                    }
                    for sample in value.into_iter().chain(values) {
                        numbers.push(number(sample)?);
                    }
                }
                Ok(Values::Many(numbers))
            }
            Some(Found::String((_, text))) => Err(brief(&text.to_string())),
        }
    }
}

/// What a field says about the completeness of the result, whatever its type; None if it says nothing, such as `false`,
/// `null`, `""` or `[]`. Of a list, the first entry is kept.
#[derive(Default)]
struct Remark(Option<String>);

impl Remark {
    fn of_text(text: &str) -> Self {
        let says_something = !matches!(text.trim(), "" | "false") && !text.starts_with(INFORMATION);
        Remark(says_something.then(|| text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Remark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Remark;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a remark about the result")
    }

    fn visit_unit<E>(self) -> Result<Remark, E> {
        Ok(Remark::default())
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Remark, E> {
        Ok(Remark(flag.then(|| "true".to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Remark, E> {
        Ok(Remark((number != 0).then(|| number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Remark, E> {
        Ok(Remark((number != 0).then(|| number.to_string())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Remark, E> {
        Ok(Remark((number != 0.0).then(|| number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Remark, E> {
        Ok(Remark::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Remark, A::Error> {
        let mut first = Remark::default();
        while let Some(next) = list.next_element::<Remark>()? {
            if first.0.is_none() {
                first = next;
            }
        }
        Ok(first)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Remark, A::Error> {
        let mut first = None;
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            first.get_or_insert(key);
        }
        Ok(Remark(first))
    }
}
