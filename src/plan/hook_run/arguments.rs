//! Arguments: `{{ args.NAME }}` in the texts of a metric.
//!
//! A name without a value is an error wherever it is met, never an empty string: a URL that lacks
//! the pod's address must not turn into a call to somewhere else.

use serde_json::Value;

use crate::api::{Argument, HookTemplateSpec, Metric, WebHeader};

/// Why a text cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// No value is known for a name.
    #[error("argument {0} has no value: give it one in args")]
    NoValue(String),
    /// Something else than `args.NAME` stands between the braces.
    #[error("{{{{{0}}}}} is not an argument: write {{{{ args.NAME }}}}")]
    NotAnArgument(String),
    /// Braces are opened and not closed.
    #[error("{{{{ is not closed: write {{{{ args.NAME }}}}")]
    NotClosed,
}

/// A stretch of plain text, and the argument that comes after it (None at the end).
type Stretch<'a> = (&'a str, Option<&'a str>);

fn stretches(text: &str) -> Result<Vec<Stretch<'_>>, ArgumentError> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once("{{") {
        let (inside, after) = after.split_once("}}").ok_or(ArgumentError::NotClosed)?;
        let name = inside
            .trim()
            .strip_prefix("args.")
            .filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| ArgumentError::NotAnArgument(inside.to_owned()))?;
        found.push((plain, Some(name)));
        rest = after;
    }
    found.push((rest, None));
    Ok(found)
}

/// Replaces each `{{ args.NAME }}` by its value.
///
/// # Errors
/// When a name has no value, or the braces hold something else.
pub fn fill<'v>(
    text: &str,
    value_of: impl Fn(&str) -> Option<&'v str>,
) -> Result<String, ArgumentError> {
    let mut filled = String::with_capacity(text.len());
    for (plain, name) in stretches(text)? {
        filled.push_str(plain);
        if let Some(name) = name {
            let value = value_of(name).ok_or_else(|| ArgumentError::NoValue(name.to_owned()))?;
            filled.push_str(value);
        }
    }
    Ok(filled)
}

/// Names that the metrics use, each once, in order of appearance.
fn used_names(metrics: &[Metric]) -> Vec<&str> {
    let mut names = Vec::new();
    for (_, text) in metrics.iter().flat_map(texts_with_arguments) {
        // A text that cannot be read fails its measurement with a message of its own.
        for name in arguments_in(text).unwrap_or_default() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Names that a text uses, in order of appearance.
///
/// # Errors
/// When braces hold something else, or are not closed.
pub fn arguments_in(text: &str) -> Result<Vec<&str>, ArgumentError> {
    let stretches = stretches(text)?.into_iter();
    Ok(stretches.filter_map(|(_, name)| name).collect())
}

/// Names that a metric uses, each once, in order of appearance.
pub fn used_arguments(metric: &Metric) -> Vec<&str> {
    used_names(std::slice::from_ref(metric))
}

/// A text, and the path of its field.
type Located<'a> = (String, &'a str);

/// The texts of a metric in which arguments are filled in, each with its field below the metric.
pub fn texts_with_arguments(metric: &Metric) -> Vec<Located<'_>> {
    let provider = &metric.provider;
    let mut texts = Vec::new();
    if let Some(web) = &provider.web {
        texts.push(("provider.web.url".to_owned(), web.url.as_str()));
        texts.extend(header_values("provider.web", &web.headers));
        let body = web.body.as_deref();
        texts.extend(body.map(|body| ("provider.web.body".to_owned(), body)));
        let json_body = web.json_body.iter();
        texts.extend(json_body.flat_map(|body| strings("provider.web.jsonBody".into(), body)));
    }
    if let Some(prometheus) = &provider.prometheus {
        texts.push(("provider.prometheus.address".into(), &prometheus.address));
        texts.push(("provider.prometheus.query".into(), &prometheus.query));
        texts.extend(header_values("provider.prometheus", &prometheus.headers));
    }
    if let Some(kubernetes) = &provider.kubernetes {
        for (index, field) in kubernetes.fields.iter().enumerate() {
            let at = format!("provider.kubernetes.fields[{index}]");
            texts.push((format!("{at}.path"), &field.path));
            texts.extend(field.value.as_deref().map(|it| (format!("{at}.value"), it)));
        }
    }
    if let Some(job) = &provider.job {
        texts.extend(texts_of_job(&job.spec));
    }
    texts
}

fn header_values<'a>(
    at: &str,
    headers: &'a [WebHeader],
) -> impl Iterator<Item = Located<'a>> + use<'a> {
    let at = format!("{at}.headers");
    let headers = headers.iter().enumerate();
    headers.map(move |(index, header)| (format!("{at}[{index}].value"), header.value.as_str()))
}

fn texts_of_job(spec: &Value) -> Vec<Located<'_>> {
    let mut texts = Vec::new();
    for list in ["containers", "initContainers"] {
        let containers = spec["template"]["spec"][list].as_array();
        for (index, container) in containers.into_iter().flatten().enumerate() {
            for part in ["command", "args", "env"] {
                let at = format!("provider.job.spec.template.spec.{list}[{index}].{part}");
                texts.extend(strings(at, &container[part]));
            }
        }
    }
    texts
}

/// All strings in a JSON value, keys left out.
fn strings(at: String, value: &Value) -> Vec<Located<'_>> {
    match value {
        Value::String(text) => vec![(at, text)],
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .flat_map(|(index, item)| strings(format!("{at}[{index}]"), item))
                .collect()
        }
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| strings(format!("{at}.{name}"), value))
            .collect(),
        _ => Vec::new(),
    }
}

fn has_value(argument: &Argument) -> bool {
    argument.value.is_some() || argument.value_from.is_some()
}

fn given_for<'a>(given: &'a [Argument], name: &str) -> Option<&'a Argument> {
    given
        .iter()
        .find(|argument| argument.name == name && has_value(argument))
}

/// Names of arguments that a template's metrics use and that have a value neither in the template
/// nor in `given`.
pub fn missing_arguments(template: &HookTemplateSpec, given: &[Argument]) -> Vec<String> {
    used_names(&template.metrics)
        .into_iter()
        .filter(|name| {
            given_for(given, name).is_none() && given_for(&template.args, name).is_none()
        })
        .map(str::to_owned)
        .collect()
}

/// The arguments of a run: those that the template declares, in its order, a given value before
/// the template's own; then given ones that its metrics use without declaring them.
///
/// What a template neither declares nor uses stays out, so that a HookRun shows what matters to it.
pub fn run_arguments(template: &HookTemplateSpec, given: &[Argument]) -> Vec<Argument> {
    let declared = template.args.iter().filter_map(|argument| {
        given_for(given, &argument.name).or(Some(argument).filter(|own| has_value(own)))
    });
    let undeclared = used_names(&template.metrics)
        .into_iter()
        .filter(|name| template.args.iter().all(|argument| argument.name != *name))
        .filter_map(|name| given_for(given, name));
    declared.chain(undeclared).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{MetricProvider, WebMetric};

    fn argument(name: &str, value: Option<&str>) -> Argument {
        Argument {
            name: name.into(),
            value: value.map(Into::into),
            value_from: None,
        }
    }

    fn template(args: &[(&str, Option<&str>)], url: &str) -> HookTemplateSpec {
        let web = WebMetric {
            url: url.into(),
            headers: vec![WebHeader {
                key: "x-pod".into(),
                value: "{{args.PodName}}".into(),
            }],
            json_body: Some(serde_json::json!({"who": ["{{ args.team }}"]})),
            ..WebMetric::default()
        };
        let provider = MetricProvider {
            web: Some(Box::new(web)),
            ..MetricProvider::default()
        };
        HookTemplateSpec {
            args: args
                .iter()
                .map(|(name, value)| argument(name, *value))
                .collect(),
            metrics: vec![Metric {
                provider,
                ..Metric::default()
            }],
            ..HookTemplateSpec::default()
        }
    }

    #[test]
    fn arguments_are_filled_in_with_and_without_spaces() {
        let value_of = |name: &str| match name {
            "PodIP" => Some("127.9.0.4"),
            "PodContainer[0]" => Some("game"),
            _ => None,
        };
        assert_eq!(
            fill(
                "http://{{ args.PodIP }}:9091/{{args.PodContainer[0]}}",
                value_of
            ),
            Ok("http://127.9.0.4:9091/game".into())
        );
        assert_eq!(
            fill("{\"a\": {\"b\": 1}}", value_of),
            Ok("{\"a\": {\"b\": 1}}".into())
        );
    }

    #[test]
    fn a_name_without_a_value_is_an_error_that_names_it() {
        let error = fill("http://{{ args.PodIP }}/", |_| None).expect_err("no value");
        assert_eq!(
            error.to_string(),
            "argument PodIP has no value: give it one in args"
        );
    }

    #[test]
    fn a_value_that_looks_like_an_argument_is_not_filled_in_again() {
        assert_eq!(
            fill("{{ args.a }}", |_| Some("{{ args.b }}")),
            Ok("{{ args.b }}".into())
        );
    }

    #[test]
    fn braces_that_hold_no_argument_are_an_error_with_the_mend() {
        for (text, message) in [
            (
                "{{ arg.x }}",
                "{{ arg.x }} is not an argument: write {{ args.NAME }}",
            ),
            (
                "{{args.}}",
                "{{args.}} is not an argument: write {{ args.NAME }}",
            ),
            ("a {{ args.x", "{{ is not closed: write {{ args.NAME }}"),
        ] {
            let error = fill(text, |_| Some("")).expect_err(text);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn missing_arguments_are_those_used_without_a_value() {
        let template = template(
            &[
                ("service", Some("svc")),
                ("PodName", None),
                ("unused", None),
            ],
            "http://{{ args.service }}.{{ args.PodIP }}",
        );
        assert_eq!(
            missing_arguments(&template, &[]),
            ["PodIP", "PodName", "team"]
        );
        let given = [
            argument("PodIP", Some("127.0.0.1")),
            argument("PodName", None),
        ];
        assert_eq!(missing_arguments(&template, &given), ["PodName", "team"]);
    }

    #[test]
    fn a_run_gets_declared_arguments_in_the_templates_order_and_used_ones() {
        let template = template(
            &[
                ("PodName", None),
                ("service", Some("svc")),
                ("unused", None),
            ],
            "http://{{ args.service }}.{{ args.PodIP }}",
        );
        let given = [
            argument("PodIP", Some("127.0.0.1")),
            argument("HostIP", Some("10.0.0.1")),
            argument("service", Some("other")),
            argument("PodName", Some("game-1")),
        ];
        let names: Vec<_> = run_arguments(&template, &given)
            .into_iter()
            .map(|argument| (argument.name, argument.value.unwrap_or_default()))
            .collect();
        let expected = [
            ("PodName", "game-1"),
            ("service", "other"),
            ("PodIP", "127.0.0.1"),
        ];
        assert_eq!(
            names,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
