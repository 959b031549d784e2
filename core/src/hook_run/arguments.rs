//! Arguments: `{{ args.NAME }}` in the strings of a metric.
//!
//! A name without a value is always an error, never an empty string: a URL that lacks the pod's
//! address must not become a call to another host.

use std::collections::{HashMap, HashSet};

use super::provider::visit_strings;
use crate::api::{Argument, HookTemplateSpec, Metric, Provider};

/// Maximum total length of the strings of one measurement with their arguments filled in, in bytes.
pub const MAX_FILLED: usize = 1 << 20;
/// Maximum length of an argument's name, in bytes.
const MAX_NAME: usize = 253;
/// Maximum number of references to arguments in a template, and in the strings of one measurement.
const MAX_REFERENCES: usize = 4_096;

/// Why arguments cannot be filled into a string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The argument has no value.
    #[error("argument {0} has no value: give it one in args")]
    NoValue(String),
    /// The braces contain something other than `args.NAME`.
    #[error("{{{{{0}}}}} is not an argument: write {{{{ args.NAME }}}}")]
    NotAnArgument(String),
    /// Braces are opened but not closed.
    #[error("{{{{ is not closed: write {{{{ args.NAME }}}}")]
    NotClosed,
    /// The strings with their arguments filled in would be too long.
    #[error(
        "it is too long with its arguments filled in: the strings of a metric may have 1 MiB in total"
    )]
    TooLong,
    /// There are too many references.
    #[error(
        "it contains too many references to arguments: at most {MAX_REFERENCES} are allowed in total"
    )]
    TooMany,
    /// The JSON that contains the references is invalid.
    #[error("the JSON cannot be read: {0}")]
    InvalidJson(String),
}

/// How much may still be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    bytes: usize,
    references: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance::of(MAX_FILLED)
    }
}

impl Allowance {
    /// An allowance for this many bytes of text.
    pub fn of(bytes: usize) -> Self {
        Allowance { bytes, references: MAX_REFERENCES }
    }

    /// Uses up this many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), ArgumentError> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or(ArgumentError::TooLong)?;
        Ok(())
    }

    /// Uses up one reference.
    fn take_reference(&mut self) -> Result<(), ArgumentError> {
        let left = self.references.checked_sub(1);
        self.references = left.ok_or(ArgumentError::TooMany)?;
        Ok(())
    }
}

/// A piece of plain text, and the argument that follows it (None at the end).
type Part<'a> = (&'a str, Option<&'a str>);

/// The parts of a string, up to and including the first error.
fn parts(text: &str) -> impl Iterator<Item = Result<Part<'_>, ArgumentError>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let part = part(rest.take()?);
        Some(part.map(|(part, after)| {
            rest = after;
            part
        }))
    })
}

/// The first part of a string, and the rest of the string after its argument.
fn part(text: &str) -> Result<(Part<'_>, Option<&str>), ArgumentError> {
    let Some((plain, after)) = text.split_once("{{") else {
        return Ok(((text, None), None));
    };
    let (inside, after) = after.split_once("}}").ok_or(ArgumentError::NotClosed)?;
    let name = inside.trim().strip_prefix("args.");
    let name = name.filter(|name| (1..=MAX_NAME).contains(&name.len()));
    let not_an_argument = || ArgumentError::NotAnArgument(inside.chars().take(MAX_NAME).collect());
    let name = name.ok_or_else(not_an_argument)?;
    Ok(((plain, Some(name)), Some(after)))
}

/// Replaces each `{{ args.NAME }}` with its value.
///
/// # Errors
/// If a name has no value, braces contain anything else or are not closed, or the allowance is exceeded.
pub fn fill<'v>(
    text: &str,
    allowance: &mut Allowance,
    value_of: impl Fn(&str) -> Option<&'v str>,
) -> Result<String, ArgumentError> {
    let mut filled = String::new();
    for part in parts(text) {
        let (plain, name) = part?;
        allowance.take(plain.len())?;
        filled.push_str(plain);
        if let Some(name) = name {
            allowance.take_reference()?;
            let value = value_of(name).ok_or_else(|| ArgumentError::NoValue(name.to_owned()))?;
            allowance.take(value.len())?;
            filled.push_str(value);
        }
    }
    Ok(filled)
}

/// Names of the arguments that metrics use, each once, in order of appearance. References beyond the maximum are
/// ignored.
fn used_names<'m>(metrics: impl IntoIterator<Item = &'m Metric>) -> Vec<String> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut references = 0;
    for metric in metrics {
        visit_strings(metric, &mut |_, text| {
            // An invalid string is skipped here. The measurement that uses it will fail and say why.
            for name in arguments_in(text).unwrap_or_default() {
                references += 1;
                if references <= MAX_REFERENCES && !places.contains_key(name) {
                    places.insert(name.to_owned(), places.len());
                }
            }
        });
    }
    let mut names: Vec<(String, usize)> = places.into_iter().collect();
    names.sort_unstable_by_key(|(_, place)| *place);
    names.into_iter().map(|(name, _)| name).collect()
}

/// Names of the arguments that a string uses, in order of appearance.
///
/// # Errors
/// If braces contain anything other than an argument, or are not closed.
pub fn arguments_in(text: &str) -> Result<Vec<&str>, ArgumentError> {
    let names = parts(text).map(|part| part.map(|(_, name)| name));
    names.filter_map(Result::transpose).collect()
}

/// Names of the arguments that a metric uses, each once, in order of appearance.
pub fn used_arguments(metric: &Metric) -> Vec<String> {
    used_names([metric])
}

/// Whether metrics contain more references to arguments than the maximum.
pub(super) fn have_too_many_references(metrics: &[Metric]) -> bool {
    let mut references = 0;
    for metric in metrics {
        visit_strings(metric, &mut |_, text| {
            // Each reference has braces; braces around anything else are an error anyway.
            references += text.matches("{{").count();
        });
    }
    references > MAX_REFERENCES
}

fn has_value(argument: &Argument) -> bool {
    argument.value.is_some() || argument.value_from.is_some()
}

/// Arguments with a value, by name.
fn by_name(given: &[Argument]) -> HashMap<&str, &Argument> {
    let given = given.iter().rev().filter(|argument| has_value(argument));
    given.map(|argument| (argument.name.as_str(), argument)).collect()
}

/// Names of arguments that a template's metrics use and that have a value neither in the template
/// nor in `given`.
pub fn missing_arguments(template: &HookTemplateSpec, given: &[Argument]) -> Vec<String> {
    let (given, defaults) = (by_name(given), by_name(&template.args));
    let is_missing =
        |name: &String| !given.contains_key(name.as_str()) && !defaults.contains_key(name.as_str());
    let names = used_names(&template.metrics).into_iter();
    names.filter(is_missing).collect()
}

/// Arguments that name the run's pod: commands run in it, and kubernetes metrics read or write its fields.
const POD_ARGUMENTS: [&str; 2] = ["PodName", "PodNamespace"];

/// The arguments of a run. First come those that the template declares, in the template's order; a given
/// value takes precedence over the template's. Then come given arguments that the metrics use but the
/// template does not declare. Commands and kubernetes metrics also use the arguments that name their pod.
///
/// Arguments that a template neither declares nor uses are left out, so that a HookRun shows only what
/// matters to it.
pub fn run_arguments(template: &HookTemplateSpec, given: &[Argument]) -> Vec<Argument> {
    let given = by_name(given);
    let declared = template.args.iter().filter_map(|argument| {
        let default = Some(argument).filter(|argument| has_value(argument));
        given.get(argument.name.as_str()).copied().or(default)
    });
    let declared_names: HashSet<&str> = template.args.iter().map(|it| it.name.as_str()).collect();
    let mut used = used_names(&template.metrics);
    let mut providers = template.metrics.iter().flat_map(|metric| metric.provider.given());
    if providers.any(Provider::concerns_pod) {
        let mut added = POD_ARGUMENTS.map(str::to_owned).to_vec();
        added.retain(|name| !used.contains(name));
        used.extend(added);
    }
    let undeclared = used.iter().filter(|name| !declared_names.contains(name.as_str()));
    let undeclared = undeclared.filter_map(|name| given.get(name.as_str()).copied());
    declared.chain(undeclared).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{MetricProvider, RawJson, WebHeader, WebMetric};

    /// Fills in arguments with the full allowance.
    fn fill<'v>(
        text: &str,
        value_of: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<String, ArgumentError> {
        super::fill(text, &mut Allowance::default(), value_of)
    }

    fn argument(name: &str, value: Option<&str>) -> Argument {
        Argument { name: name.into(), value: value.map(Into::into), value_from: None }
    }

    fn template(args: &[(&str, Option<&str>)], url: &str) -> HookTemplateSpec {
        let web = WebMetric {
            url: url.into(),
            headers: vec![WebHeader { key: "x-pod".into(), value: "{{args.PodName}}".into() }],
            json_body: Some(RawJson::from(&json!({"who": ["{{ args.team }}"]}))),
            ..WebMetric::default()
        };
        let provider = MetricProvider { web: Some(Box::new(web)), ..MetricProvider::default() };
        HookTemplateSpec {
            args: args.iter().map(|(name, value)| argument(name, *value)).collect(),
            metrics: vec![Metric { provider, ..Metric::default() }],
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
            fill("http://{{ args.PodIP }}:9091/{{args.PodContainer[0]}}", value_of),
            Ok("http://127.9.0.4:9091/game".into())
        );
        assert_eq!(fill("{\"a\": {\"b\": 1}}", value_of), Ok("{\"a\": {\"b\": 1}}".into()));
    }

    #[test]
    fn a_missing_value_is_an_error_that_names_the_argument() {
        let error = fill("http://{{ args.PodIP }}/", |_| None).expect_err("no value");
        assert_eq!(error.to_string(), "argument PodIP has no value: give it one in args");
    }

    #[test]
    fn a_value_that_looks_like_an_argument_is_not_filled_in_again() {
        assert_eq!(fill("{{ args.a }}", |_| Some("{{ args.b }}")), Ok("{{ args.b }}".into()));
    }

    #[test]
    fn braces_without_an_argument_are_an_error_with_the_fix() {
        for (text, message) in [
            ("{{ arg.x }}", "{{ arg.x }} is not an argument: write {{ args.NAME }}"),
            ("{{args.}}", "{{args.}} is not an argument: write {{ args.NAME }}"),
            ("a {{ args.x", "{{ is not closed: write {{ args.NAME }}"),
        ] {
            let error = fill(text, |_| Some("")).expect_err(text);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn missing_arguments_are_those_used_without_a_value() {
        let template = template(
            &[("service", Some("svc")), ("PodName", None), ("unused", None)],
            "http://{{ args.service }}.{{ args.PodIP }}",
        );
        assert_eq!(missing_arguments(&template, &[]), ["PodIP", "PodName", "team"]);
        let given = [argument("PodIP", Some("127.0.0.1")), argument("PodName", None)];
        assert_eq!(missing_arguments(&template, &given), ["PodName", "team"]);
    }

    #[test]
    fn a_run_gets_declared_arguments_in_the_templates_order_then_used_ones() {
        let template = template(
            &[("PodName", None), ("service", Some("svc")), ("unused", None)],
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
        let expected = [("PodName", "game-1"), ("service", "other"), ("PodIP", "127.0.0.1")];
        assert_eq!(names, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_run_that_uses_its_pod_gets_the_arguments_that_name_the_pod() {
        let exec = json!({"container": "game", "command": ["/bin/idle", "{{ args.PodName }}"]});
        let fields = json!([{"path": "metadata.annotations.example.com/idle", "value": "true"}]);
        let kubernetes = json!({"function": "get", "fields": fields});
        for (provider, missing) in
            [(json!({"exec": exec}), &["PodName"][..]), (json!({"kubernetes": kubernetes}), &[])]
        {
            let metrics = json!([{"name": "idle", "provider": provider}]);
            let template: HookTemplateSpec =
                serde_json::from_value(json!({"metrics": metrics})).expect("a template");
            let given = ["PodNamespace", "PodName", "PodIP"].map(|name| argument(name, Some("x")));
            let names = run_arguments(&template, &given).into_iter();
            let names: Vec<String> = names.map(|argument| argument.name).collect();
            assert_eq!(names, ["PodName", "PodNamespace"]);
            assert_eq!(missing_arguments(&template, &[]), missing);
        }
    }

    #[test]
    fn the_length_of_filled_strings_and_their_number_of_references_are_bounded() {
        let value = "x".repeat(1 << 20);
        let value_of = |name: &str| Some(if name == "long" { value.as_str() } else { "" });
        assert!(fill("{{ args.long }}", value_of).is_ok());
        let twice = "{{ args.long }}{{ args.long }}";
        assert_eq!(fill(twice, value_of), Err(ArgumentError::TooLong));
        let (most, too_many) = (4_096, 4_097);
        assert_eq!(fill(&"{{ args.a }}".repeat(most), value_of), Ok(String::new()));
        let refused = fill(&"{{ args.a }}".repeat(too_many), value_of);
        assert_eq!(refused, Err(ArgumentError::TooMany));
        // All strings of a measurement share one allowance.
        let mut allowance = Allowance::of(10);
        assert_eq!(super::fill("123456", &mut allowance, value_of), Ok("123456".into()));
        let second = super::fill("12345", &mut allowance, value_of);
        assert_eq!(second, Err(ArgumentError::TooLong));
    }
}
