//! Creates the run from a file: selects the template, checks it as the API server would, and sets its arguments.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::Options;
use gamekeeper_core::admission::{Finding, unknown_fields};
use gamekeeper_core::api::{Argument, HookRun, HookRunSpec, HookTemplate, HookTemplateSpec};
use gamekeeper_core::hook_run::{missing_arguments, run_arguments, used_arguments};
use gamekeeper_core::lint::yaml::{self, Document, NotYaml};

/// Why a file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(String, std::io::Error),
    /// The file is not valid YAML at this line.
    #[error("{0}:{1}: is not YAML: {2}")]
    NotYaml(String, usize, String),
    /// The file has no matching object.
    #[error("{0} has no HookTemplate or HookRun{1}")]
    Nothing(String, String),
    /// The file has several matching objects.
    #[error("there are several: choose one of {0} with --name")]
    Several(String),
    /// The object has an unknown field.
    #[error("{0}:{1}: {2}: check its spelling and position")]
    UnknownField(String, usize, Finding),
    /// A field has a wrong type.
    #[error("{0}")]
    Malformed(serde_json::Error),
    /// Arguments have no value.
    #[error("no value for {0}: add --arg NAME=VALUE for each")]
    NoValue(String),
    /// An option sets an unknown argument.
    #[error("the template has no argument {0}: check its spelling")]
    UnknownArgument(String),
}

pub(super) fn read(options: &Options) -> Result<HookRunSpec, FileError> {
    let file = options.file.display().to_string();
    let text =
        contents(&options.file).map_err(|error| FileError::Unreadable(file.clone(), error))?;
    let document = choose(&file, &text, options.name.as_deref())?;
    let template = template(&file, document)?;
    let args: Vec<Argument> = options.args.iter().map(argument).collect();
    let declared = template.args.iter().map(|argument| argument.name.clone());
    let known: Vec<String> =
        declared.chain(template.metrics.iter().flat_map(used_arguments)).collect();
    if let Some(unknown) = args.iter().find(|it| !known.contains(&it.name)) {
        return Err(FileError::UnknownArgument(unknown.name.clone()));
    }
    let missing = missing_arguments(&template, &args);
    if !missing.is_empty() {
        return Err(FileError::NoValue(missing.join(", ")));
    }
    Ok(HookRunSpec {
        args: run_arguments(&template, &args),
        metrics: template.metrics,
        policy: template.policy,
        dry_run: template.dry_run,
        measurement_retention: template.measurement_retention,
        ..HookRunSpec::default()
    })
}

fn contents(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    match file == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut bytes)?,
        false => std::fs::File::open(file)?.read_to_end(&mut bytes)?,
    };
    Ok(yaml::decode(&bytes))
}

fn argument((name, value): &(String, String)) -> Argument {
    Argument { name: name.clone(), value: Some(value.clone()), value_from: None }
}

/// The only HookTemplate or HookRun in a file, or the one with this name.
fn choose(file: &str, text: &str, wanted: Option<&str>) -> Result<Document, FileError> {
    let mut found = Vec::new();
    let documents = yaml::read(text);
    for document in
        documents.map_err(|NotYaml { line, why }| FileError::NotYaml(file.to_owned(), line, why))?
    {
        let object = &document.object;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_hook = ["HookTemplate", "HookRun"].iter().any(|kind| object["kind"] == *kind);
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
            let named = named.unwrap_or_default();
            Err(FileError::Nothing(file.to_owned(), named))
        }
    }
}

/// The template of an object. Unknown fields are errors: otherwise, a metric with a misspelled successCondition would
/// always succeed.
fn template(file: &str, document: Document) -> Result<HookTemplateSpec, FileError> {
    let kind = document.object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(unknown) = unknown_fields(&kind, &document.object).into_iter().next() {
        let line = document.line(&unknown.field);
        return Err(FileError::UnknownField(file.to_owned(), line, unknown));
    }
    let object: Value = document.object;
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
        let args = args.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let options = Options {
            file: file.clone(),
            args: args.collect(),
            name: name.map(Into::into),
            hook_allow_link_local: false,
            exec_locally: false,
        };
        let spec = read(&options).map_err(|error| error.to_string());
        std::fs::remove_file(file).expect("the file");
        spec
    }

    #[test]
    fn arguments_come_from_the_command_line_and_the_template() {
        let spec = read_text(TEMPLATE, &[("PodIP", "127.0.0.1")], None).expect("a run");
        let values: Vec<_> =
            spec.args.iter().map(|it| it.value.clone().unwrap_or_default()).collect();
        assert_eq!(values, ["red", "127.0.0.1"]);
    }

    #[test]
    fn errors_name_what_is_missing_misspelled_or_ambiguous() {
        let ip = [("PodIP", "127.0.0.1")];
        let two = format!("{TEMPLATE}---{}", TEMPLATE.replace("name: test", "name: other"));
        for (text, args, name, expected) in [
            (TEMPLATE, &[][..], None, "no value for PodIP: "),
            (TEMPLATE, &[("PodIp", "1")][..], None, "the template has no argument PodIp"),
            (
                &TEMPLATE.replace("url:", "uri:"),
                &ip[..],
                None,
                ".yaml:9: spec.metrics[0].provider.web.uri: unknown field \"spec.metrics[0].provider.web.uri\": check ",
            ),
            (&two, &ip[..], None, "there are several: choose one of test, other with --name"),
            (&two, &ip[..], Some("none"), " has no HookTemplate or HookRun named none"),
            ("kind: Pod", &[][..], None, " has no HookTemplate or HookRun"),
            ("a: [", &[][..], None, ": is not YAML: "),
        ] {
            let error = read_text(text, args, name).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        assert!(read_text(&two, &ip, Some("other")).is_ok());
    }

    #[test]
    fn files_may_use_the_yaml_dialect_and_the_lists_that_kubectl_accepts() {
        let text = TEMPLATE.replace("url:", "insecure: yes, timeoutSeconds: 017, url:");
        let items = text.replace("\n", "\n  ").replacen("kind", "- kind", 1);
        let items = items.replacen("  - kind", "- kind", 1);
        for text in [text, format!("kind: List\nitems:{items}")] {
            let spec = read_text(&text, &[("PodIP", "127.0.0.1")], None).expect(&text);
            let web = spec.metrics[0].provider.web.as_ref().expect("web");
            assert_eq!((web.insecure, web.timeout_seconds), (true, Some(15)));
        }
    }
}
