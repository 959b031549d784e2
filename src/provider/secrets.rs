//! The secrets that one measurement uses, and how they are kept out of everything that is shown.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;
use url::Url;

use gamekeeper_core::go_json;

/// The text that replaces a secret. For a shorter secret, it is cut to the secret's length, so that no text grows.
const HIDDEN: &str = "***";

/// Secret values. They are hidden as they are, as escaped in JSON by common encoders, and as encoded in the query or the
/// path of a URL.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    values: BTreeSet<Arc<str>>,
}

impl Secrets {
    pub(super) fn add(&mut self, secret: &str) {
        if !secret.is_empty() && !self.values.contains(secret) {
            self.values.insert(secret.into());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds the secrets of another part of the measurement.
    pub(super) fn extend(&mut self, other: &Secrets) {
        self.values.extend(other.values.iter().cloned());
    }

    /// All forms of all secrets, longest first. If a shorter one were replaced first, parts of a longer one that
    /// contains it would remain.
    fn forms(&self) -> Vec<String> {
        let forms = self.values.iter().flat_map(|secret| {
            let mut forms = vec![secret.to_string()];
            forms.extend(json_forms(secret));
            forms.extend(url_forms(secret));
            forms
        });
        let forms: BTreeSet<String> = forms.filter(|form| !form.is_empty()).collect();
        let mut forms: Vec<String> = forms.into_iter().collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms
    }

    /// Hides the secrets in a text.
    pub(super) fn hide(&self, text: String) -> String {
        if self.is_empty() {
            return text;
        }
        self.forms().iter().fold(text, |text, form| {
            let hidden = &HIDDEN[..form.len().min(HIDDEN.len())];
            match text.contains(form.as_str()) {
                true => text.replace(form.as_str(), hidden),
                false => text,
            }
        })
    }

    /// Hides the secrets in a body. Unless there are no secrets, bytes that are not UTF-8 are replaced as well.
    pub(super) fn hide_bytes(&self, body: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return body;
        }
        match String::from_utf8(body) {
            Ok(text) => self.hide(text).into_bytes(),
            Err(binary) => {
                self.hide(String::from_utf8_lossy(binary.as_bytes()).into_owned()).into_bytes()
            }
        }
    }
}

/// A text as escaped in JSON: only as necessary, and as the encoders of common languages escape it by default.
fn json_forms(text: &str) -> [String; 5] {
    let value = Value::from(text);
    let necessary = value.to_string();
    let go = String::from_utf8_lossy(&go_json::to_bytes(&value)).into_owned();
    let python = to_ascii(&necessary);
    let with_slashes = necessary.replace('/', "\\/");
    let php = python.replace('/', "\\/");
    [necessary, go, python, with_slashes, php].map(|quoted| quoted[1..quoted.len() - 1].to_owned())
}

/// Escapes the characters of a JSON text that are not ASCII.
fn to_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            ascii.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(ascii, "\\u{unit:04x}");
        }
    }
    ascii
}

/// A text as encoded in the query of a URL, and as encoded in the path of a URL.
fn url_forms(text: &str) -> [String; 2] {
    let Ok(mut url) = Url::parse("http://h/") else {
        return Default::default();
    };
    url.query_pairs_mut().append_pair("", text);
    let query = url.query().unwrap_or_default().trim_start_matches('=').to_owned();
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().push(text);
    }
    [query, url.path().trim_start_matches('/').to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If `*` were replaced by `***`, a text of stars would become three times as long.
    #[test]
    fn hiding_secrets_makes_no_text_longer() {
        let mut secrets = Secrets::default();
        for secret in ["*", "a", "b"] {
            secrets.add(secret);
        }
        assert_eq!(secrets.hide("abc*".into()), "**c*");
    }

    #[test]
    fn a_secret_is_hidden_in_text_in_json_and_in_urls() {
        let mut secrets = Secrets::default();
        secrets.add("s3 \"c&ret");
        secrets.add("s3");
        secrets.add("k/é&");
        for (text, hidden) in [
            ("{\"php\":\"k\\/\\u00e9&\"}", "{\"php\":\"***\"}"),
            ("{\"python\":\"k/\\u00e9&\"}", "{\"python\":\"***\"}"),
            ("{\"go\":\"k/é\\u0026\"}", "{\"go\":\"***\"}"),
            ("it is s3 \"c&ret!", "it is ***!"),
            ("{\"echo\":\"s3 \\\"c&ret\"}", "{\"echo\":\"***\"}"),
            ("GET /?token=s3+%22c%26ret", "GET /?token=***"),
            ("http://h/s3%20%22c&ret", "http://h/***"),
            ("s3 alone", "** alone"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(secrets.hide(text.into()), hidden);
        }
        assert_eq!(secrets.hide_bytes(b"\xff s3".to_vec()), "\u{fffd} **".as_bytes());
    }
}
