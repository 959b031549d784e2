//! The objects of some files, each checked as the API server would, and against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::yaml::{self, Document};
use super::{Diagnostic, Source};
use crate::admission::{self, Finding, KINDS, Schemas, Templates, lies_in};
use crate::api::{API_VERSION, GROUP, HookTemplate};

/// HookTemplates by namespace and name.
type Known = BTreeMap<(String, String), Arc<HookTemplate>>;

/// An object and where it comes from.
struct Placed<'a> {
    file: &'a str,
    document: Document,
    /// What the schema says.
    findings: Vec<Finding>,
}

/// Checks all objects of some texts.
pub(super) fn check(sources: &[Source]) -> Vec<Diagnostic> {
    let schemas = Schemas::default();
    let mut diagnostics = Vec::new();
    let mut objects = Vec::new();
    for Source { name, text } in sources {
        match yaml::read(text) {
            Ok(documents) => {
                let ours = documents.into_iter().filter(is_ours);
                objects.extend(ours.map(|document| place(name, document, &schemas)));
            }
            Err((line, why)) => diagnostics.push(Diagnostic {
                file: name.clone(),
                line,
                finding: Finding::error("", format!("is not YAML: {why}")),
            }),
        }
    }
    let known: Known = objects.iter().filter_map(template).collect();
    diagnostics.extend(
        objects
            .into_iter()
            .flat_map(|object| object.diagnose(&known)),
    );
    diagnostics.sort();
    diagnostics.dedup();
    diagnostics
}

fn is_ours(document: &Document) -> bool {
    let of_group = |version: &str| version.split('/').next() == Some(GROUP);
    document.object["apiVersion"].as_str().is_some_and(of_group)
}

fn place<'a>(file: &'a str, mut document: Document, schemas: &Schemas) -> Placed<'a> {
    let version = document.object["apiVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let kind = document.object["kind"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let mut findings = Vec::new();
    if version != API_VERSION {
        findings.push(Finding::invalid(
            "apiVersion",
            &version,
            format!("write {API_VERSION}"),
        ));
    } else if !KINDS.contains(&kind.as_str()) {
        let fix = format!("must be one of {}", KINDS.join(", "));
        findings.push(Finding::invalid("kind", &kind, fix));
    } else {
        let metadata = &document.object["metadata"];
        if metadata["name"].is_null() && metadata["generateName"].is_null() {
            findings.push(Finding::error(
                "metadata.name",
                "Required value: name or generateName is required",
            ));
        }
        findings.extend(schemas.check(&kind, &mut document.object));
    }
    Placed {
        file,
        document,
        findings,
    }
}

fn key(object: &Value, name: &str) -> (String, String) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    (namespace.to_owned(), name.to_owned())
}

fn template(object: &Placed) -> Option<((String, String), Arc<HookTemplate>)> {
    let object = &object.document.object;
    let name = object["metadata"]["name"].as_str()?;
    let template = HookTemplate::deserialize(object).ok();
    let template = template.filter(|_| object["kind"] == "HookTemplate")?;
    Some((key(object, name), Arc::new(template)))
}

impl Placed<'_> {
    fn diagnose(self, known: &Known) -> Vec<Diagnostic> {
        let object = &self.document.object;
        // Given no namespace, both go where kubectl is told to put them.
        let find = |name: &str| {
            let anywhere = || known.get(&(String::new(), name.to_owned()));
            known.get(&key(object, name)).or_else(anywhere).cloned()
        };
        let templates = Templates {
            find: &find,
            place: "these files",
        };
        let mut findings = self.findings;
        // What the schema refuses need not be told again in other words. What it says of the object as a
        // whole is about none of the fields.
        let said = findings.iter().filter(|said| !said.field.is_empty());
        let is_new = |finding: &Finding| {
            let mut said = said.clone();
            !said.any(|said| {
                lies_in(&finding.field, &said.field) || lies_in(&said.field, &finding.field)
            })
        };
        let more = admission::check(object, &templates);
        let more: Vec<Finding> = more.into_iter().filter(is_new).collect();
        findings.extend(more);
        let file = self.file;
        let document = &self.document;
        findings
            .into_iter()
            .map(|finding| Diagnostic {
                file: file.to_owned(),
                line: document.line(&finding.field),
                finding,
            })
            .collect()
    }
}
