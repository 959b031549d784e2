//! Fills arguments into the texts of a measurement. Must run on the evaluation pool.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use super::call_permit::MAX_SHORT_TEXT;
use gamekeeper_core::api::RawJson;
use gamekeeper_core::hook_run::{Allowance, ArgumentError, MAX_FILLED, Place, fill, fill_json};

/// Fills arguments into the texts of one measurement. The total length of these texts is bounded.
pub(super) struct Filling<'a> {
    values: HashMap<&'a str, &'a str>,
    allowance: Allowance,
    /// Whether the texts became longer than allowed.
    overflowed: bool,
}

impl<'a> Filling<'a> {
    /// Allows as much text as the measurement's permit does.
    pub(super) fn new(values: HashMap<&'a str, &'a str>, allows_long_texts: bool) -> Self {
        Filling {
            values,
            allowance: Allowance::of(if allows_long_texts { MAX_FILLED } else { MAX_SHORT_TEXT }),
            overflowed: false,
        }
    }

    /// Whether the texts became longer than allowed.
    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).copied()
    }

    /// Fills arguments into a field.
    pub(super) fn text(&mut self, field: &str, text: &str) -> Result<String, String> {
        let Filling { values, allowance, .. } = self;
        let filled = fill(text, allowance, |name| values.get(name).copied());
        self.name_field_in_error(field, filled)
    }

    /// Fills arguments into a URL. An IPv6 address gets the brackets that it needs as a host, so that
    /// `http://{{ args.PodIP }}:9091` works for every pod.
    pub(super) fn url(&mut self, field: &str, url: &str) -> Result<String, String> {
        let (before, authority, after) = parts(url);
        let before = self.text(field, before)?;
        let authority = self.authority(field, authority)?;
        Ok(before + &authority + &self.text(field, after)?)
    }

    fn authority(&mut self, field: &str, authority: &str) -> Result<String, String> {
        let Filling { values, allowance, .. } = self;
        let is_v6 = |(_, value): &(&&str, &&str)| value.parse::<Ipv6Addr>().is_ok();
        let bracketed: HashMap<&str, String> = { values.iter().filter(is_v6) }
            .map(|(name, value)| (*name, format!("[{value}]")))
            .collect();
        let filled = fill(authority, allowance, |name| {
            let bracketed = bracketed.get(name).map(String::as_str);
            bracketed.or_else(|| values.get(name).copied())
        });
        let filled = self.name_field_in_error(field, filled)?;
        // The template may already have brackets.
        Ok(filled.replace("[[", "[").replace("]]", "]"))
    }

    /// Fills arguments into JSON.
    pub(super) fn json(
        &mut self,
        field: &str,
        json: &RawJson,
        place: Place,
    ) -> Result<String, String> {
        let Filling { values, allowance, .. } = self;
        let filled = fill_json(json, place, allowance, &|name| values.get(name).copied());
        self.name_field_in_error(field, filled)
    }

    /// Names the field in the error, and records whether the texts became too long.
    fn name_field_in_error<T>(
        &mut self,
        field: &str,
        filled: Result<T, ArgumentError>,
    ) -> Result<T, String> {
        filled.map_err(|error| {
            self.overflowed |= error == ArgumentError::TooLong;
            format!("{field}: {error}")
        })
    }
}

/// Splits a URL into the part before its authority (host and port), the authority, and the rest. If a URL begins with
/// an argument, the argument's value contains the authority.
fn parts(url: &str) -> (&str, &str, &str) {
    let Some(scheme) = url.find("://") else {
        return (url, "", "");
    };
    let (before, rest) = url.split_at(scheme + "://".len());
    // Names of arguments contain none of these characters.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    (before, authority, after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALUES: [(&str, &str); 2] = [("PodIP", "127.9.0.4"), ("PodIP6", "fd00::4")];

    fn url(url: &str) -> String {
        let mut filling = Filling::new(HashMap::from(VALUES), false);
        filling.url("url", url).expect("a URL")
    }

    #[test]
    fn an_ipv6_address_gets_its_brackets_in_a_url() {
        assert_eq!(url("http://{{ args.PodIP }}:9091"), "http://127.9.0.4:9091");
        let bracketed = "http://[fd00::4]:9091";
        assert_eq!(url("http://{{ args.PodIP6 }}:9091"), bracketed);
        assert_eq!(url("http://[{{ args.PodIP6 }}]:9091"), bracketed);
    }

    /// `[[:alpha:]]` is a character class in Prometheus's regular expressions.
    #[test]
    fn the_part_of_a_url_after_its_host_is_sent_as_written() {
        for rest in [r#"/api?query={job=~"[[:alpha:]]+"}"#, "?a[[0]]=1", "#[[", "/a://[[b]]"] {
            assert_eq!(
                url(&format!("http://{{{{ args.PodIP6 }}}}:9091{rest}")),
                format!("http://[fd00::4]:9091{rest}")
            );
        }
        assert_eq!(
            url("https://probe/{{ args.PodIP6 }}?to={{args.PodIP6}}&not={{args.PodIP}}"),
            "https://probe/fd00::4?to=fd00::4&not=127.9.0.4"
        );
        assert_eq!(url("{{ args.PodIP }}/[[a]]"), "127.9.0.4/[[a]]");
    }

    #[test]
    fn strings_at_any_depth_of_a_body_are_filled() {
        let body = json!({"ip": "{{ args.PodIP }}", "more": [{"n": 1, "t": "to {{args.PodIP}}"}]});
        let mut filling = Filling::new(HashMap::from(VALUES), false);
        let filled = filling.json("jsonBody", &RawJson::from(&body), Place::Filled);
        let expected = r#"{"ip":"127.9.0.4","more":[{"n":1,"t":"to 127.9.0.4"}]}"#;
        assert_eq!(filled, Ok(expected.to_owned()));
    }

    #[test]
    fn an_argument_without_a_value_is_an_error_that_names_the_field() {
        let mut filling = Filling::new(HashMap::new(), false);
        let error = filling.text("body", "{{ args.unset }}").expect_err("no value");
        assert_eq!(error, "body: argument unset has no value: give it one in args");
        assert!(!filling.overflowed());
    }

    #[test]
    fn all_texts_of_a_measurement_are_bounded_together() {
        let text = "x".repeat(MAX_SHORT_TEXT / 2);
        for (allows_long_texts, fit) in [(false, 2), (true, 2 * MAX_FILLED / MAX_SHORT_TEXT)] {
            let mut filling = Filling::new(HashMap::new(), allows_long_texts);
            for _ in 0..fit {
                assert!(filling.text("body", &text).is_ok());
            }
            assert!(!filling.overflowed());
            let error = filling.text("body", &text).expect_err("too long");
            assert!(
                error.starts_with("body: it is too long with its arguments filled in"),
                "{error}"
            );
            assert!(filling.overflowed());
        }
    }
}
