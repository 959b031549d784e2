//! Checks the objects in files as the API server does, and against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;
use serde_json::Value;

use super::argo;
use super::yaml::{self, Document, NotYaml};
use super::{Diagnostic, Source};
use crate::admission::{self, Finding, KINDS, Namespaces, Neighbor, Schemas, Templates, lies_in};
use crate::api::{API_VERSION, GROUP, HookTemplate, SidecarSet};

/// HookTemplates by namespace and name.
type TemplatesByName = BTreeMap<(String, String), Arc<HookTemplate>>;

/// A PodDisruptionBudget: its namespace, name and selector.
struct Budget {
    namespace: String,
    name: String,
    selector: Selector,
}

/// The objects that another object may conflict with or refer to, from all files.
struct Others {
    templates: TemplatesByName,
    budgets: Vec<Budget>,
    sidecar_sets: Vec<SidecarSet>,
    workloads: Vec<Neighbor>,
    namespaces: Namespaces,
}

/// An object in a file.
struct Object<'a> {
    file: &'a str,
    document: Document,
    /// The findings from the schema check.
    findings: Vec<Finding>,
}

pub(super) fn check(sources: &[Source]) -> Vec<Diagnostic> {
    let schemas = Schemas::default();
    let mut diagnostics = Vec::new();
    let mut objects = Vec::new();
    let mut budgets = Vec::new();
    let mut namespaces = Namespaces::new();
    for Source { name, text } in sources {
        match yaml::read(text) {
            Ok(documents) => {
                budgets.extend(documents.iter().filter_map(budget));
                namespaces
                    .extend(documents.iter().filter_map(|it| admission::namespace(&it.object)));
                let ours = documents.into_iter().filter(is_in_our_group);
                objects.extend(ours.map(|document| Object::new(name, document, &schemas)));
            }
            Err(NotYaml { line, why }) => diagnostics.push(Diagnostic {
                file: name.clone(),
                line,
                finding: Finding::error("", format!("is not YAML: {why}")),
            }),
        }
    }
    let others = Others {
        templates: objects.iter().filter_map(template).collect(),
        budgets,
        sidecar_sets: objects
            .iter()
            .filter_map(|it| admission::sidecar_set(&it.document.object))
            .collect(),
        workloads: objects.iter().filter_map(|it| Neighbor::read(&it.document.object)).collect(),
        namespaces,
    };
    diagnostics.extend(objects.into_iter().flat_map(|object| object.diagnose(&others)));
    diagnostics.sort();
    diagnostics.dedup();
    diagnostics
}

fn is_in_our_group(document: &Document) -> bool {
    let is_ours = |version: &str| version.split('/').next() == Some(GROUP);
    document.object["apiVersion"].as_str().is_some_and(is_ours)
}

fn key(object: &Value, name: &str) -> (String, String) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    (namespace.to_owned(), name.to_owned())
}

fn template(object: &Object) -> Option<((String, String), Arc<HookTemplate>)> {
    let object = &object.document.object;
    let name = object["metadata"]["name"].as_str()?;
    let template = HookTemplate::deserialize(object).ok();
    let template = template.filter(|_| object["kind"] == "HookTemplate")?;
    Some((key(object, name), Arc::new(template)))
}

/// The PodDisruptionBudget in a document. One without a selector is ignored, because it selects nothing.
fn budget(document: &Document) -> Option<Budget> {
    let object = &document.object;
    if object["kind"] != "PodDisruptionBudget" {
        return None;
    }
    let selector = LabelSelector::deserialize(&object["spec"]["selector"]).ok()?;
    let (namespace, name) = key(object, object["metadata"]["name"].as_str()?);
    Some(Budget { namespace, name, selector: selector.try_into().ok()? })
}

impl Budget {
    /// A finding if the budget selects the pods of a guarded workload. A budget without a namespace may be applied to
    /// any namespace.
    fn finding_about(&self, workload: &Value) -> Option<Finding> {
        let (namespace, _) = key(workload, "");
        let may_share_namespace = self.namespace.is_empty() || self.namespace == namespace;
        may_share_namespace
            .then(|| admission::another_budget(workload, &self.name, &self.selector))?
    }
}

impl<'a> Object<'a> {
    fn new(file: &'a str, mut document: Document, schemas: &Schemas) -> Self {
        let text = |field: &str| document.object[field].as_str().unwrap_or_default();
        let (version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
        let mut findings = Vec::new();
        if version != API_VERSION {
            let fix = format!("write {API_VERSION}");
            findings.push(Finding::invalid("apiVersion", &version, fix));
        } else if !KINDS.contains(&kind.as_str()) {
            let fix = format!("must be one of {}", KINDS.join(", "));
            findings.push(Finding::invalid("kind", &kind, fix));
        } else {
            let metadata = &document.object["metadata"];
            if metadata["name"].is_null() && metadata["generateName"].is_null() {
                let message = "Required value: name or generateName is required";
                findings.push(Finding::error("metadata.name", message));
            }
            let found = schemas.check(&kind, &mut document.object).into_iter();
            findings.extend(found.map(argo::with_fix));
        }
        findings.extend(document.repeated().map(|field| {
            let message =
                "is set more than once, and kubectl uses the last value: remove the others";
            Finding::error(field, message).as_warning()
        }));
        Self { file, document, findings }
    }

    fn diagnose(self, others: &Others) -> Vec<Diagnostic> {
        let known = &others.templates;
        let object = &self.document.object;
        // A HookTemplate without a namespace may be applied to the namespace of this object.
        let find = |name: &str| {
            let without_namespace = || known.get(&(String::new(), name.to_owned()));
            let in_namespace = known.get(&key(object, name));
            in_namespace.or_else(without_namespace).cloned()
        };
        let templates = Templates { find: &find, place: "these files" };
        let mut findings = self.findings;
        // If the schema check has findings about a field, further findings about the field, its parents or its
        // children are left out. Findings about the whole object do not count as findings about a field.
        let fields = findings.iter().map(|it| &it.field);
        let fields: Vec<_> = fields.filter(|field| !field.is_empty()).cloned().collect();
        let overlaps = |one: &str, other: &str| lies_in(one, other) || lies_in(other, one);
        let rule_findings = admission::check(object, &templates).into_iter();
        let budget_findings = others.budgets.iter().filter_map(|it| it.finding_about(object));
        let rule_findings = rule_findings
            .chain(budget_findings)
            .chain(admission::conflicts_of_sidecar_sets(object, &others.sidecar_sets))
            .chain(admission::conflicts_with_workloads(
                object,
                &others.workloads,
                &others.namespaces,
            ));
        let is_about_other_field =
            |it: &Finding| !fields.iter().any(|field| overlaps(&it.field, field));
        findings.extend(rule_findings.filter(is_about_other_field));
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
