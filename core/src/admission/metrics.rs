//! Metrics: conditions, paths, headers and arguments, read as they will be read when they count.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{Finding, pods};
use crate::api::{
    Argument, HookRunSpec, HookTemplateSpec, KubernetesFunction, KubernetesMetric, Metric,
    WebHeader,
};
use crate::expr::Condition;
use crate::expr::field::{metadata_key, parse_field_path};
use crate::expr::jsonpath::JsonPath;
use crate::expr::writable;
use crate::plan::hook_run::{
    Allowance, SHORTEST_INTERVAL, arguments_in, can_succeed, fill, visit_texts,
};
use crate::plan::{OPERATOR_ARGUMENTS, parse_duration};

/// Texts of a metric that are found fault with: who writes them sees the rest once these are fixed.
const MAX_FINDINGS: usize = 32;

/// What is wrong with a template. Arguments without a value get one from the workload.
pub(super) fn of_template(spec: &HookTemplateSpec) -> Vec<Finding> {
    let mut findings = of_metrics(&spec.metrics);
    findings.extend(sources(&spec.args));
    let declared = declared(&spec.args);
    let is_known = |name: &str| declared.contains(name) || is_of_operator(name);
    for (field, name) in unknown_arguments(&spec.metrics, is_known) {
        let message = format!(
            "Invalid value: argument {name} is not declared: add it to spec.args, or check its spelling"
        );
        findings.push(Finding::error(field, message));
    }
    for (index, metric) in spec.metrics.iter().enumerate() {
        let alone = HookTemplateSpec {
            metrics: vec![metric.clone()],
            ..HookTemplateSpec::default()
        };
        if let Err(why) = can_succeed(&alone) {
            let message = format!("Invalid value: can never end Successful: {why}");
            findings.push(Finding::error(format!("spec.metrics[{index}]"), message));
        }
    }
    findings
}

/// What is wrong with a run. All of its arguments have a value, or it can measure nothing.
pub(super) fn of_run(spec: &HookRunSpec) -> Vec<Finding> {
    let mut findings = of_metrics(&spec.metrics);
    findings.extend(sources(&spec.args));
    let declared = declared(&spec.args);
    for (field, name) in unknown_arguments(&spec.metrics, |name| declared.contains(name)) {
        let message =
            format!("Invalid value: argument {name} has no value: give it one in spec.args");
        findings.push(Finding::error(field, message));
    }
    findings
}

/// Names of arguments that are declared.
fn declared(args: &[Argument]) -> HashSet<&str> {
    args.iter().map(|argument| argument.name.as_str()).collect()
}

/// Whether the operator gives pod hooks a value for it: `PodIP`, or one of a list, `PodContainer[0]`.
pub(super) fn is_of_operator(name: &str) -> bool {
    let is_index = |rest: &str| {
        let index = rest.strip_suffix(']');
        index.is_some_and(|index| index.parse::<usize>().is_ok())
    };
    OPERATOR_ARGUMENTS
        .iter()
        .any(|given| match given.ends_with('[') {
            false => *given == name,
            true => name.strip_prefix(given).is_some_and(is_index),
        })
}

/// Arguments that metrics use and that are not known, each with its field.
fn unknown_arguments(metrics: &[Metric], is_known: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut unknown = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        visit_texts(metric, &mut |field, text| {
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

/// Fields of the run that arguments are taken from.
fn sources(args: &[Argument]) -> Vec<Finding> {
    let args = args.iter().enumerate();
    let paths = args.filter_map(|(index, argument)| {
        let path = &argument.value_from.as_ref()?.field_ref.as_ref()?.field_path;
        let field = format!("spec.args[{index}].valueFrom.fieldRef.fieldPath");
        field_path(&field, path)
    });
    paths.collect()
}

/// A path that cannot be read. One with arguments in it is only known when they are filled in.
fn field_path(field: &str, path: &str) -> Option<Finding> {
    if metadata_key(path).is_some() || path.contains("{{") {
        return None;
    }
    let error = parse_field_path(path).err()?;
    Some(Finding::invalid(field, path, error.why()))
}

fn of_metrics(metrics: &[Metric]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        let at = format!("spec.metrics[{index}]");
        findings.extend(interval(&at, metric));
        findings.extend(conditions(&at, metric));
        findings.extend(calls(&at, metric));
        let mut unreadable = Vec::new();
        visit_texts(metric, &mut |field, text| {
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

/// An interval that is shorter than the one at which it would be measured. Not a rule of the CRD: the
/// operator makes runs of templates that were stored before there was one.
fn interval(at: &str, metric: &Metric) -> Option<Finding> {
    let text = metric.interval.as_deref()?;
    let is_short = parse_duration(text).ok()? < SHORTEST_INTERVAL;
    let fix = "must be at least 1s";
    is_short.then(|| Finding::invalid(format!("{at}.interval"), text, fix))
}

/// Conditions that cannot be read, or compare what can never be equal.
fn conditions(at: &str, metric: &Metric) -> Vec<Finding> {
    let both = [
        ("successCondition", &metric.success_condition),
        ("failureCondition", &metric.failure_condition),
    ];
    let given = both
        .into_iter()
        .filter_map(|(field, source)| Some((field, source.as_deref()?)));
    given
        .filter_map(|(field, source)| condition(format!("{at}.{field}"), source, metric))
        .collect()
}

fn condition(field: String, source: &str, metric: &Metric) -> Option<Finding> {
    let condition = match Condition::compile(source) {
        Ok(condition) => condition,
        Err(error) => return Some(Finding::invalid(field, source, error.why())),
    };
    let provider = &metric.provider;
    let is_text = |whose: &str| {
        format!(
            "Invalid value: compares result with a number, but {whose} is text: write \
             asInt(result) < 30 or asFloat(result) < 0.5"
        )
    };
    let one_field = |of: &KubernetesMetric| of.fields.len() == 1;
    let why = if condition.compares_result_with_number() && provider.web.is_some() {
        // The CRD says so too, wherever a regular expression can see it: in these words.
        is_text("a web call's result")
    } else if condition.compares_result_with_number()
        && provider.kubernetes.as_ref().is_some_and(one_field)
    {
        is_text("a field's result")
    } else if condition.compares_result_with_text() && provider.prometheus.is_some() {
        "Invalid value: compares result with text, but a query's result is a number: write \
         result < 0.5"
            .to_owned()
    } else {
        return None;
    };
    Some(Finding::error(field, why))
}

/// Paths and headers of a metric's call.
fn calls(at: &str, metric: &Metric) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(web) = &metric.provider.web {
        let at = format!("{at}.provider.web");
        let path = web.json_path.as_deref().map(str::trim).unwrap_or_default();
        if let Err(error) = JsonPath::parse(path)
            && !path.is_empty()
        {
            findings.push(Finding::invalid(
                format!("{at}.jsonPath"),
                path,
                error.why(),
            ));
        }
        findings.extend(url(&format!("{at}.url"), &web.url));
        findings.extend(headers(&at, &web.headers));
    }
    if let Some(prometheus) = &metric.provider.prometheus {
        let at = format!("{at}.provider.prometheus");
        findings.extend(url(&format!("{at}.address"), &prometheus.address));
        findings.extend(headers(&at, &prometheus.headers));
    }
    if let Some(job) = &metric.provider.job {
        let at = format!("{at}.provider.job.spec.template");
        let spec: Value = job.spec.read().unwrap_or_default();
        findings.extend(pods::of_template(&at, &spec["template"], &[]));
    }
    if let Some(kubernetes) = &metric.provider.kubernetes {
        findings.extend(fields(&format!("{at}.provider.kubernetes"), kubernetes));
    }
    findings
}

/// A URL that is none, whatever its arguments are.
fn url(field: &str, url: &str) -> Option<Finding> {
    // One that begins with an argument may be anything.
    if url.starts_with("{{") {
        return None;
    }
    // Any number does for a host, a port and a part of a path.
    let filled = fill(url, &mut Allowance::default(), |_| Some("1")).ok()?;
    let error = url::Url::parse(filled.trim()).err()?;
    let fix = "write one such as http://{{ args.PodIP }}:8080/drained";
    Some(Finding::invalid(
        field,
        url,
        format!("is not a URL: {error}; {fix}"),
    ))
}

fn headers(at: &str, headers: &[WebHeader]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        let at = format!("{at}.headers[{index}]");
        if HeaderName::try_from(&header.key).is_err() {
            let fix = "is not a header name: use letters, digits and '-'";
            findings.push(Finding::invalid(format!("{at}.key"), &header.key, fix));
        }
        if HeaderValue::from_str(&header.value).is_err() {
            // Not shown: it may hold a secret.
            let message = "Invalid value: contains characters that are not allowed in a header, such as a line break";
            findings.push(Finding::error(format!("{at}.value"), message));
        }
    }
    findings
}

/// Fields of a Kubernetes metric.
fn fields(at: &str, kubernetes: &KubernetesMetric) -> Vec<Finding> {
    let fields = kubernetes.fields.iter().enumerate();
    fields
        .filter_map(|(index, it)| {
            let field = format!("{at}.fields[{index}].path");
            match kubernetes.function {
                KubernetesFunction::Get => field_path(&field, &it.path),
                KubernetesFunction::Patch if it.path.contains("{{") => None,
                KubernetesFunction::Patch => {
                    // Not refused: manifests of bk-bcs, whose hooks may write its keys, apply unchanged.
                    let why = writable(&it.path).err()?;
                    Some(Finding::error(field, format!("Invalid value: {why}")).as_warning())
                }
            }
        })
        .collect()
}
