//! The arguments of one measurement, with their values.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use crate::api::Argument;
use crate::plan::hook_run::{ArgumentError, fill};

/// Values by name.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    values: BTreeMap<String, String>,
}

impl Arguments {
    /// The arguments of a run that have a value of their own.
    pub fn of(args: &[Argument]) -> Self {
        let values = args
            .iter()
            .filter_map(|argument| Some((argument.name.clone(), argument.value.clone()?)));
        Arguments {
            values: values.collect(),
        }
    }

    /// Fills arguments into a text.
    ///
    /// # Errors
    /// When a name has no value, or braces hold no argument.
    pub fn fill(&self, text: &str) -> Result<String, ArgumentError> {
        fill(text, |name| self.values.get(name).map(String::as_str))
    }

    /// Fills arguments into a URL. An IPv6 address gets the brackets that it needs there, so that
    /// `http://{{ args.PodIP }}:9091` works for every pod.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub fn fill_url(&self, url: &str) -> Result<String, ArgumentError> {
        let bracketed: BTreeMap<&str, String> = self
            .values
            .iter()
            .filter(|(_, value)| value.parse::<Ipv6Addr>().is_ok())
            .map(|(name, value)| (name.as_str(), format!("[{value}]")))
            .collect();
        let filled = fill(url, |name| {
            let plain = || self.values.get(name).map(String::as_str);
            bracketed.get(name).map(String::as_str).or_else(plain)
        })?;
        // Where the template has brackets already.
        Ok(filled.replace("[[", "[").replace("]]", "]"))
    }

    /// Fills arguments into every string of a JSON value.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub fn fill_json(&self, value: &serde_json::Value) -> Result<serde_json::Value, ArgumentError> {
        use serde_json::Value;
        Ok(match value {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(items) => items
                .iter()
                .map(|item| self.fill_json(item))
                .collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), self.fill_json(value)?)));
                Value::Object(fields.collect::<Result<_, _>>()?)
            }
            other => other.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        let argument = |name: &str, value: Option<&str>| Argument {
            name: name.into(),
            value: value.map(Into::into),
            value_from: None,
        };
        Arguments::of(&[
            argument("PodIP", Some("127.9.0.4")),
            argument("PodIP6", Some("fd00::4")),
            argument("unset", None),
        ])
    }

    #[test]
    fn an_ipv6_address_gets_its_brackets_in_a_url() {
        let fill = |url| arguments().fill_url(url).expect("a URL");
        assert_eq!(
            fill("http://{{ args.PodIP }}:9091"),
            "http://127.9.0.4:9091"
        );
        assert_eq!(
            fill("http://{{ args.PodIP6 }}:9091"),
            "http://[fd00::4]:9091"
        );
        assert_eq!(
            fill("http://[{{ args.PodIP6 }}]:9091"),
            "http://[fd00::4]:9091"
        );
    }

    #[test]
    fn strings_at_any_depth_of_a_body_are_filled() {
        let body = serde_json::json!({"ip": "{{ args.PodIP }}", "more": [{"n": 1, "t": "to {{args.PodIP}}"}]});
        let filled = arguments().fill_json(&body).expect("a body");
        assert_eq!(
            filled,
            serde_json::json!({"ip": "127.9.0.4", "more": [{"n": 1, "t": "to 127.9.0.4"}]})
        );
    }

    #[test]
    fn an_argument_without_a_value_is_an_error() {
        let error = arguments().fill("{{ args.unset }}").expect_err("no value");
        assert_eq!(error, ArgumentError::NoValue("unset".into()));
    }
}
