//! From a file to a run: which template, whether it is written as the API server would take it, and
//! the values of its arguments.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::Options;
use crate::api::{Argument, HookRun, HookRunSpec, HookTemplate, HookTemplateSpec, crds};
use crate::plan::hook_run::{missing_arguments, run_arguments, used_arguments};

/// Why a file cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    Unreadable(String, std::io::Error),
    /// It is no YAML.
    #[error("{0}: {1}")]
    NoYaml(String, serde_yaml_ng::Error),
    /// There is nothing in it to try.
    #[error("{0} has no HookTemplate or HookRun{1}")]
    Nothing(String, String),
    /// There is too much.
    #[error("there are several: choose one with --name, of {0}")]
    Several(String),
    /// A field is not known.
    #[error("unknown field {0}: look at its spelling and its place")]
    UnknownField(String),
    /// The object is not of its kind.
    #[error("{0}")]
    Malformed(serde_json::Error),
    /// Arguments have no value.
    #[error("no value for {0}: add --arg NAME=VALUE for each")]
    NoValue(String),
    /// A value is for nothing.
    #[error("the template has no argument {0}: look at its spelling")]
    UnusedValue(String),
}

/// Reads the run that the command line asks for.
pub(super) fn read(options: &Options) -> Result<HookRunSpec, FileError> {
    let shown = options.file.display().to_string();
    let text =
        contents(&options.file).map_err(|error| FileError::Unreadable(shown.clone(), error))?;
    let object = choose(&shown, &text, options.name.as_deref())?;
    let template = template(object)?;
    let given: Vec<Argument> = options.args.iter().map(argument).collect();
    let declared = template.args.iter().map(|argument| argument.name.as_str());
    let known: Vec<&str> = declared
        .chain(template.metrics.iter().flat_map(used_arguments))
        .collect();
    if let Some(unused) = given.iter().find(|it| !known.contains(&it.name.as_str())) {
        return Err(FileError::UnusedValue(unused.name.clone()));
    }
    let missing = missing_arguments(&template, &given);
    if !missing.is_empty() {
        return Err(FileError::NoValue(missing.join(", ")));
    }
    Ok(HookRunSpec {
        args: run_arguments(&template, &given),
        metrics: template.metrics,
        policy: template.policy,
        dry_run: template.dry_run,
        measurement_retention: template.measurement_retention,
        ..HookRunSpec::default()
    })
}

fn contents(file: &Path) -> std::io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn argument((name, value): &(String, String)) -> Argument {
    Argument {
        name: name.clone(),
        value: Some(value.clone()),
        value_from: None,
    }
}

/// The one HookTemplate or HookRun of a file that is meant.
fn choose(shown: &str, text: &str, wanted: Option<&str>) -> Result<Value, FileError> {
    let mut found = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let document = Value::deserialize(document);
        let document = document.map_err(|error| FileError::NoYaml(shown.to_owned(), error))?;
        let name = document["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let is_hook = ["HookTemplate", "HookRun"]
            .iter()
            .any(|kind| document["kind"] == *kind);
        if is_hook && wanted.is_none_or(|wanted| wanted == name) {
            found.push((name, document));
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some((_, document)), true) => Ok(document),
        (Some(last), false) => {
            let names = found.into_iter().chain([last]).map(|(name, _)| name);
            Err(FileError::Several(names.collect::<Vec<_>>().join(", ")))
        }
        (None, _) => {
            let named = wanted.map(|name| format!(" named {name}"));
            Err(FileError::Nothing(
                shown.to_owned(),
                named.unwrap_or_default(),
            ))
        }
    }
}

/// What an object says, as a template.
fn template(object: Value) -> Result<HookTemplateSpec, FileError> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(field) = unknown_field(&schema(&kind)["spec"], &object["spec"], "spec") {
        return Err(FileError::UnknownField(field));
    }
    if kind == "HookTemplate" {
        let template: HookTemplate =
            serde_json::from_value(object).map_err(FileError::Malformed)?;
        return Ok(template.spec);
    }
    let run: HookRun = serde_json::from_value(object).map_err(FileError::Malformed)?;
    Ok(HookTemplateSpec {
        args: run.spec.args,
        metrics: run.spec.metrics,
        policy: run.spec.policy,
        dry_run: run.spec.dry_run,
        measurement_retention: run.spec.measurement_retention,
    })
}

/// The properties of a kind.
fn schema(kind: &str) -> Value {
    let of_kind = crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    let schema = of_kind.and_then(|crd| crd.spec.versions.into_iter().next()?.schema);
    let schema = schema.and_then(|validation| validation.open_api_v3_schema);
    schema.map_or(Value::Null, |schema| {
        serde_json::to_value(schema.properties).unwrap_or_default()
    })
}

/// The path of a field that a schema does not know. A field that is misspelt would do nothing, and
/// a condition that does nothing lets everything pass.
fn unknown_field(schema: &Value, value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object()?;
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            fields.iter().find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match known.get(name) {
                    Some(schema) => unknown_field(schema, value, &path),
                    None => (!keeps).then_some(path),
                }
            })
        }
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            unknown_field(&schema["items"], item, &format!("{path}[{index}]"))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "
kind: HookTemplate
metadata: {name: test}
spec:
  args: [{name: team, value: red}]
  metrics:
  - name: webtest
    provider:
      web: {url: 'http://{{ args.PodIP }}', jsonBody: {any: {thing: 1}}}
";

    fn read_text(
        text: &str,
        args: &[(&str, &str)],
        name: Option<&str>,
    ) -> Result<HookRunSpec, String> {
        let file = std::env::temp_dir().join(format!(
            "gamekeeper-try-{}-{:?}.yaml",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&file, text).expect("a file");
        let args = args
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let options = Options {
            file: file.clone(),
            args: args.collect(),
            name: name.map(Into::into),
            hook_allow_link_local: false,
        };
        let spec = read(&options).map_err(|error| error.to_string());
        std::fs::remove_file(file).expect("the file");
        spec
    }

    #[test]
    fn arguments_come_from_the_command_line_and_the_template() {
        let spec = read_text(TEMPLATE, &[("PodIP", "127.0.0.1")], None).expect("a run");
        let values: Vec<_> = spec
            .args
            .iter()
            .map(|it| it.value.clone().unwrap_or_default())
            .collect();
        assert_eq!(values, ["red", "127.0.0.1"]);
    }

    #[test]
    fn what_is_missing_misspelt_or_ambiguous_is_named() {
        let ip = [("PodIP", "127.0.0.1")];
        let two = format!(
            "{TEMPLATE}---{}",
            TEMPLATE.replace("name: test", "name: other")
        );
        for (text, args, name, expected) in [
            (TEMPLATE, &[][..], None, "no value for PodIP: "),
            (
                TEMPLATE,
                &[("PodIp", "1")][..],
                None,
                "the template has no argument PodIp",
            ),
            (
                &TEMPLATE.replace("url:", "uri:"),
                &ip[..],
                None,
                "unknown field spec.metrics[0].provider.web.uri",
            ),
            (
                &two,
                &ip[..],
                None,
                "there are several: choose one with --name, of test, other",
            ),
            (
                &two,
                &ip[..],
                Some("none"),
                " has no HookTemplate or HookRun named none",
            ),
            (
                "kind: Pod",
                &[][..],
                None,
                " has no HookTemplate or HookRun",
            ),
            ("a: [", &[][..], None, ".yaml: "),
        ] {
            let error = read_text(text, args, name).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        assert!(read_text(&two, &ip, Some("other")).is_ok());
    }
}
