//! Metrics: conditions, paths, headers and arguments, parsed as they are for a measurement.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{Finding, exec, pods};
use crate::api::{
    Argument, HookRunSpec, HookTemplateSpec, KubernetesFunction, KubernetesMetric, Metric,
    Provider, WebHeader,
};
use crate::expr::Condition;
use crate::expr::field::{metadata_key, parse_field_path};
use crate::expr::jsonpath::{JsonPath, PathError};
use crate::expr::writable;
use crate::hook_run::{
    ALWAYS_THE_POD, Allowance, ResultKind, SHORTEST_INTERVAL, arguments_in, check_can_succeed,
    fill, selects_object, visit_strings,
};
use crate::observed::time::parse_duration;
use crate::workload::OPERATOR_ARGUMENTS;

/// The maximum number of findings about unknown arguments in a template, and about strings in a metric that cannot be
/// parsed.
pub(super) const MAX_FINDINGS: usize = 32;

/// Checks a HookTemplate. Its arguments may lack a value, because the workload can set it.
pub(super) fn check_template(spec: &HookTemplateSpec) -> Vec<Finding> {
    let mut findings = check_metrics(&spec.metrics);
    findings.extend(check_sources(&spec.args));
    findings.extend(other_objects(&spec.args, &spec.metrics));
    let declared = declared(&spec.args);
    let is_known = |name: &str| declared.contains(name) || is_set_by_operator(name);
    for (field, name) in unknown_arguments(&spec.metrics, is_known) {
        let message = format!(
            "Invalid value: argument {name} is not declared: add it to spec.args, or check its spelling"
        );
        findings.push(Finding::error(field, message));
    }
    for (index, metric) in spec.metrics.iter().enumerate() {
        let single =
            HookTemplateSpec { metrics: vec![metric.clone()], ..HookTemplateSpec::default() };
        if let Err(why) = check_can_succeed(&single) {
            let message = format!("Invalid value: can never end Successful: {why}");
            findings.push(Finding::error(format!("spec.metrics[{index}]"), message));
        }
    }
    findings.extend(exec::secrets_in_commands(&spec.metrics, &spec.args));
    findings
}

/// Checks a HookRun. All of its arguments need a value.
pub(super) fn check_run(spec: &HookRunSpec) -> Vec<Finding> {
    let mut findings = check_metrics(&spec.metrics);
    findings.extend(check_sources(&spec.args));
    findings.extend(other_objects(&spec.args, &spec.metrics));
    let declared = declared(&spec.args);
    for (field, name) in unknown_arguments(&spec.metrics, |name| declared.contains(name)) {
        let message =
            format!("Invalid value: argument {name} has no value: give it one in spec.args");
        findings.push(Finding::error(field, message));
    }
    findings.extend(exec::secrets_in_commands(&spec.metrics, &spec.args));
    findings.extend(exec::commands_without_pod(&spec.metrics, &spec.args));
    findings
}

/// Finds arguments that, in bk-bcs, make a kubernetes metric read another object instead of the pod.
fn other_objects(args: &[Argument], metrics: &[Metric]) -> Vec<Finding> {
    let reads_objects = metrics.iter().any(|it| it.provider.kubernetes.is_some());
    let args = args.iter().enumerate();
    args.filter(|(_, argument)| reads_objects && selects_object(&argument.name))
        .map(|(index, argument)| {
            let field = format!("spec.args[{index}].name");
            Finding::invalid(field, &argument.name, ALWAYS_THE_POD)
        })
        .collect()
}

fn declared(args: &[Argument]) -> HashSet<&str> {
    args.iter().map(|argument| argument.name.as_str()).collect()
}

/// Whether the operator sets this argument of pod hooks: `PodIP`, or an item of a list such as `PodContainer[0]`.
pub(super) fn is_set_by_operator(name: &str) -> bool {
    let is_index = |rest: &str| {
        let index = rest.strip_suffix(']');
        index.is_some_and(|index| index.parse::<usize>().is_ok())
    };
    OPERATOR_ARGUMENTS.iter().any(|given| match given.ends_with('[') {
        false => *given == name,
        true => name.strip_prefix(given).is_some_and(is_index),
    })
}

/// The fields of metrics that use unknown arguments, each with the name of the argument.
fn unknown_arguments(metrics: &[Metric], is_known: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut unknown = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        visit_strings(metric, &mut |field, text| {
            let names = arguments_in(text).unwrap_or_default().into_iter();
            for name in names.filter(|name| !is_known(name)) {
                if unknown.len() < MAX_FINDINGS {
                    unknown.push((format!("spec.metrics[{index}].{field}"), name.to_owned()));
                }
            }
        });
    }
    unknown
}

/// Finds invalid field paths in the sources of arguments.
fn check_sources(args: &[Argument]) -> Vec<Finding> {
    let args = args.iter().enumerate();
    let paths = args.filter_map(|(index, argument)| {
        let path = &argument.value_from.as_ref()?.field_ref.as_ref()?.field_path;
        let field = format!("spec.args[{index}].valueFrom.fieldRef.fieldPath");
        check_field_path(&field, path)
    });
    paths.collect()
}

/// Finds an invalid path. A path with a placeholder such as `{{ args.NAME }}` cannot be checked before a run.
fn check_field_path(field: &str, path: &str) -> Option<Finding> {
    if metadata_key(path).is_some() || path.contains("{{") {
        return None;
    }
    let error = parse_field_path(path).err()?;
    Some(Finding::invalid(field, path, error.why()))
}

fn check_metrics(metrics: &[Metric]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        let at = format!("spec.metrics[{index}]");
        findings.extend(check_interval(&at, metric));
        findings.extend(check_conditions(&at, metric));
        findings.extend(check_provider(&at, metric));
        let mut unreadable = Vec::new();
        visit_strings(metric, &mut |field, text| {
            if let Err(why) = arguments_in(text)
                && unreadable.len() < MAX_FINDINGS
            {
                unreadable.push(Finding::invalid(format!("{at}.{field}"), text, why));
            }
        });
        findings.extend(unreadable);
    }
    findings
}

/// Finds an interval below the minimum. This is not a rule of the CRD, because the operator creates runs from templates
/// that were stored before this check existed.
fn check_interval(at: &str, metric: &Metric) -> Option<Finding> {
    let text = metric.interval.as_deref()?;
    let is_short = parse_duration(text).ok()? < SHORTEST_INTERVAL;
    let fix = "must be at least 1s";
    is_short.then(|| Finding::invalid(format!("{at}.interval"), text, fix))
}

/// Finds conditions that are invalid, or that compare `result` with a value of the wrong type.
fn check_conditions(at: &str, metric: &Metric) -> Vec<Finding> {
    let conditions = [
        ("successCondition", &metric.success_condition),
        ("failureCondition", &metric.failure_condition),
    ];
    let given =
        conditions.into_iter().filter_map(|(field, source)| Some((field, source.as_deref()?)));
    given
        .filter_map(|(field, source)| check_condition(format!("{at}.{field}"), source, metric))
        .collect()
}

fn check_condition(field: String, source: &str, metric: &Metric) -> Option<Finding> {
    let condition = match Condition::compile(source) {
        Ok(condition) => condition,
        Err(error) => return Some(Finding::invalid(field, source, error.why())),
    };
    let provider = metric.provider.given().next();
    if let Some(Provider::Prometheus(prometheus)) = provider
        && condition.compares_result_with_number()
        && returns_list(&prometheus.query)
    {
        // A warning, because this is a guess.
        let why = "Invalid value: compares result with a number, but this query's result is a list: write result[0] < 0.5";
        return Some(Finding::error(field, why).as_warning());
    }
    let kind = provider.map(Provider::result_kind);
    let why = match kind {
        // The CRD has a rule with the same message for web calls, but a regular expression cannot find every such
        // comparison.
        Some(ResultKind::Json) if condition.compares_result_with_number() => {
            number_as_text("a web call's result")
        }
        Some(ResultKind::Text(subject)) if condition.compares_result_with_number() => {
            number_as_text(subject)
        }
        Some(ResultKind::Text(subject)) if condition.uses_result_as_truth() => format!(
            "Invalid value: uses result as true or false, but {subject} is text: write \
             result == 'true'"
        ),
        Some(ResultKind::Number) if condition.uses_result_as_truth() => {
            "Invalid value: uses result as true or false, but a query's result is a number: write \
             result[0] > 0.5"
                .to_owned()
        }
        Some(ResultKind::Number) if condition.compares_result_with_text() => {
            "Invalid value: compares result with text, but a query's result is a number: write \
             result < 0.5"
                .to_owned()
        }
        _ => return None,
    };
    Some(Finding::error(field, why))
}

/// Whether a query returns a list, as far as can be seen: few functions of PromQL return a single number. A query that
/// begins with an argument may be any.
fn returns_list(query: &str) -> bool {
    let query: String = query.chars().filter(|it| !it.is_whitespace()).collect();
    let has_scalar = ["scalar(", "time(", "pi("].iter().any(|function| query.contains(function));
    !has_scalar && !query.starts_with("{{") && query.contains(char::is_alphabetic)
}

fn number_as_text(subject: &str) -> String {
    format!(
        "Invalid value: compares result with a number, but {subject} is text: write asInt(result) < 30 or \
         asFloat(result) < 0.5"
    )
}

/// Checks a metric's provider: URLs, paths, headers and pod templates.
fn check_provider(at: &str, metric: &Metric) -> Vec<Finding> {
    metric.provider.given().flat_map(|it| check_one(&format!("{at}.provider"), it)).collect()
}

fn check_one(at: &str, provider: Provider<'_>) -> Vec<Finding> {
    match provider {
        Provider::Web(web) => {
            let at = format!("{at}.web");
            let path = web.json_path.as_deref().map(str::trim).unwrap_or_default();
            let error = JsonPath::parse(path).err().filter(|_| !path.is_empty());
            let finding =
                |error: PathError| Finding::invalid(format!("{at}.jsonPath"), path, error.why());
            let findings =
                error.map(finding).into_iter().chain(check_url(&format!("{at}.url"), &web.url));
            findings.chain(check_headers(&at, &web.headers)).collect()
        }
        Provider::Prometheus(prometheus) => {
            let at = format!("{at}.prometheus");
            let url = check_url(&format!("{at}.address"), &prometheus.address);
            url.into_iter().chain(check_headers(&at, &prometheus.headers)).collect()
        }
        Provider::Job(job) => {
            let spec: Value = job.spec.read().unwrap_or_default();
            pods::check_template(&format!("{at}.job.spec.template"), &spec["template"], &[])
        }
        Provider::Kubernetes(kubernetes) => check_fields(&format!("{at}.kubernetes"), kubernetes),
        Provider::Exec(exec) => {
            exec::check_container(&format!("{at}.exec"), exec).into_iter().collect()
        }
    }
}

/// Finds a URL that is invalid, whatever values its arguments have.
fn check_url(field: &str, url: &str) -> Option<Finding> {
    // An argument at the start may be the whole URL.
    if url.starts_with("{{") {
        return None;
    }
    // A number is valid as a host, as a port and in a path.
    let filled = fill(url, &mut Allowance::default(), |_| Some("1")).ok()?;
    let error = url::Url::parse(filled.trim()).err()?;
    let fix = "write one such as http://{{ args.PodIP }}:8080/drained";
    Some(Finding::invalid(field, url, format!("is not a URL: {error}; {fix}")))
}

fn check_headers(at: &str, headers: &[WebHeader]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        let at = format!("{at}.headers[{index}]");
        if HeaderName::try_from(&header.key).is_err() {
            let fix = "is not a header name: use letters, digits and '-'";
            findings.push(Finding::invalid(format!("{at}.key"), &header.key, fix));
        }
        if HeaderValue::from_str(&header.value).is_err() {
            // The value may contain a secret.
            let message = "Invalid value: contains characters that are not allowed in a header, such as a line break";
            findings.push(Finding::error(format!("{at}.value"), message));
        }
    }
    findings
}

/// Checks the fields of a Kubernetes metric.
fn check_fields(at: &str, kubernetes: &KubernetesMetric) -> Vec<Finding> {
    let fields = kubernetes.fields.iter().enumerate();
    fields
        .filter_map(|(index, it)| {
            let field = format!("{at}.fields[{index}].path");
            match kubernetes.function {
                KubernetesFunction::Get => check_field_path(&field, &it.path),
                KubernetesFunction::Patch if it.path.contains("{{") => None,
                KubernetesFunction::Patch => {
                    // A warning, so that bk-bcs manifests can be applied unchanged: their hooks may write keys of
                    // bk-bcs.
                    let why = writable(&it.path, it.value.as_deref().unwrap_or_default()).err()?;
                    Some(Finding::error(field, format!("Invalid value: {why}")).as_warning())
                }
            }
        })
        .collect()
}
