//! Secrets in use by one measurement, and how they are kept out of everything that is shown.

use reqwest::Url;
use serde_json::Value;

/// What stands where a secret stood.
const HIDDEN: &str = "***";

/// Secret values, in each form in which they could come back.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    /// Longest first, so that no part of a longer one is left.
    forms: Vec<String>,
}

impl Secrets {
    /// Adds a secret.
    pub(super) fn add(&mut self, secret: &str) {
        let json = Value::from(secret).to_string();
        let [query, path] = in_url(secret);
        for form in [secret, json.trim_matches('"'), &query, &path] {
            if !form.is_empty() && !self.forms.iter().any(|known| known == form) {
                self.forms.push(form.to_owned());
            }
        }
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Adds those of another measurement part.
    pub(super) fn extend(&mut self, other: &Secrets) {
        for form in &other.forms {
            self.add(form);
        }
    }

    /// A text without secrets.
    pub(super) fn hide(&self, text: String) -> String {
        self.forms
            .iter()
            .fold(text, |text, form| match text.contains(form.as_str()) {
                true => text.replace(form.as_str(), HIDDEN),
                false => text,
            })
    }

    /// A body without secrets; what is no text cannot be shown either and stays.
    pub(super) fn hide_bytes(&self, body: Vec<u8>) -> Vec<u8> {
        if self.forms.is_empty() {
            return body;
        }
        match String::from_utf8(body) {
            Ok(text) => self.hide(text).into_bytes(),
            Err(binary) => self
                .hide(String::from_utf8_lossy(binary.as_bytes()).into_owned())
                .into_bytes(),
        }
    }
}

/// A text as it stands in a URL's query, and in its path.
fn in_url(text: &str) -> [String; 2] {
    let Ok(mut url) = Url::parse("http://h/") else {
        return Default::default();
    };
    url.query_pairs_mut().append_pair("", text);
    let query = url
        .query()
        .unwrap_or_default()
        .trim_start_matches('=')
        .to_owned();
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().push(text);
    }
    [query, url.path().trim_start_matches('/').to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_in_every_form_in_which_it_can_come_back() {
        let mut secrets = Secrets::default();
        secrets.add("s3 \"c&ret");
        secrets.add("s3");
        for (text, hidden) in [
            ("it is s3 \"c&ret!", "it is ***!"),
            ("{\"echo\":\"s3 \\\"c&ret\"}", "{\"echo\":\"***\"}"),
            ("GET /?token=s3+%22c%26ret", "GET /?token=***"),
            ("http://h/s3%20%22c&ret", "http://h/***"),
            ("s3 alone", "*** alone"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(secrets.hide(text.into()), hidden);
        }
        assert_eq!(
            secrets.hide_bytes(b"\xff s3".to_vec()),
            "\u{fffd} ***".as_bytes()
        );
    }
}
