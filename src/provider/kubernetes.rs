//! Kubernetes metrics: fields of the pod that the run is about, compared or written.
//!
//! Users who may write a HookRun need not be allowed to change pods, so pods are changed only by runs that the
//! operator created for a pod.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::call_permit::CallPermit;
use super::filling::Filling;
use super::judge::Conditions;
use super::measure::Measurement;
use super::own_pod;
use gamekeeper_core::api::{
    HookPhase, HookRun, KubernetesField, KubernetesFunction, KubernetesMetric,
};
use gamekeeper_core::expr::field::{NoField, field};
use gamekeeper_core::expr::{Document, Subject, brief, writable};
use gamekeeper_core::hook_run::{ALWAYS_THE_POD, Outcome, selects_object};

/// Compares or writes fields of the pod.
pub(super) async fn measure(
    measurement: &Measurement,
    kubernetes: &KubernetesMetric,
    permit: CallPermit,
) -> Outcome {
    let measured = match (check_arguments(measurement), kubernetes.function) {
        (Err(why), _) => Err(why),
        (Ok(()), KubernetesFunction::Get) => get(measurement, permit).await,
        (Ok(()), KubernetesFunction::Patch) => patch(measurement, permit).await,
    };
    measured.unwrap_or_else(Outcome::error)
}

/// Checks that there is no argument with which bk-bcs would read an object other than the pod. Where admission is
/// enabled, it has already reported such an argument.
fn check_arguments(measurement: &Measurement) -> Result<(), String> {
    let args = &measurement.run().spec.args;
    match args.iter().find(|argument| selects_object(&argument.name)) {
        Some(argument) => Err(format!("argument {} {ALWAYS_THE_POD}", argument.name)),
        None => Ok(()),
    }
}

/// A pod, and the fields that are read from it.
struct PodFields {
    /// The name of the pod.
    pod: String,
    /// The path of each field, with the value that the field must have, if the metric gives one.
    fields: Vec<(String, Option<String>)>,
}

fn pod_fields(measurement: &Measurement, filling: &mut Filling<'_>) -> Result<PodFields, String> {
    let pod = own_pod::name(measurement, filling)?;
    let mut fields = Vec::new();
    for KubernetesField { path, value } in fields_of(measurement) {
        let path = filling.text("path", path)?;
        let value = value.as_ref().map(|value| filling.text("value", value));
        fields.push((path, value.transpose()?));
    }
    Ok(PodFields { pod, fields })
}

fn fields_of(measurement: &Measurement) -> &[KubernetesField] {
    let kubernetes = measurement.metric().provider.kubernetes.as_ref();
    kubernetes.map(|it| &*it.fields).unwrap_or_default()
}

async fn get(measurement: &Measurement, mut permit: CallPermit) -> Result<Outcome, String> {
    let pod_fields = measurement.filled(&mut permit, pod_fields).await?;
    let namespace = permit.namespace().to_owned();
    let pod = measurement.cluster()?.pod(&namespace, &pod_fields.pod, &mut permit).await?;
    let run = Arc::clone(&measurement.call.run);
    let conditions = Conditions::of(measurement.metric());
    let compared = measurement.evaluated(move || {
        let _permit = permit;
        compare(&run, &pod, &pod_fields, &conditions)
    });
    compared.await?
}

/// Judges the fields of a pod. Must run on the evaluation pool.
fn compare(
    run: &HookRun,
    pod: &str,
    PodFields { pod: name, fields }: &PodFields,
    conditions: &Conditions,
) -> Result<Outcome, String> {
    let pod = match Document::read(pod.as_bytes()) {
        Ok(Document::Json(pod)) => pod,
        _ => return Err(format!("pod {name} is too large to be read")),
    };
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    own_pod::check_uid(run, name, uid)?;
    let mut found = Vec::new();
    for (path, wanted) in fields {
        let text = match field(&pod, path) {
            Ok(text) => text,
            Err(NoField::Bad(why)) => return Err(why),
            Err(NoField::NotSet) => {
                return Ok(failed("", format!("{path} of pod {name} is not set")));
            }
        };
        if let Some(wanted) = wanted.as_ref().filter(|wanted| **wanted != text) {
            let (actual, wanted) = (brief(&text), brief(wanted));
            return Ok(failed(&text, format!("{path} of pod {name} is {actual}, not {wanted}")));
        }
        found.push(text);
    }
    Ok(match found.as_slice() {
        [one] => conditions.judge(&Subject::text(one.as_str()), None),
        many => {
            let list = Value::from(many);
            conditions.judge(&Subject::whole(&list), None)
        }
    })
}

fn failed(value: &str, message: String) -> Outcome {
    let value = (!value.is_empty()).then(|| brief(value));
    Outcome { phase: HookPhase::Failed, value, message: Some(message), ..Outcome::default() }
}

/// The name of the pod, and the patch for it.
fn pod_patch(
    measurement: &Measurement,
    filling: &mut Filling<'_>,
) -> Result<(String, String), String> {
    let is_controlled = measurement.run().controlling_workload().is_some();
    let Some(uid) = own_pod::wanted_uid(measurement.run()).filter(|_| is_controlled) else {
        return Err(
            "function patch works only in HookRuns that a workload created for one of its pods: otherwise use \
            kubectl annotate or kubectl label"
                .into(),
        );
    };
    let pod = own_pod::name(measurement, filling)?;
    let mut maps: Map<String, Value> = Map::new();
    for KubernetesField { path, value } in fields_of(measurement) {
        let path = filling.text("path", path)?;
        let value = value.as_deref().ok_or_else(|| format!("{path} needs a value to write"))?;
        let value = filling.text("value", value)?;
        let (map, key) = writable(&path, &value)?;
        maps.entry(map).or_insert_with(|| json!({}))[key] = Value::from(value);
    }
    // With the uid, the patch cannot change a later pod with the same name.
    maps.insert("uid".to_owned(), Value::from(uid));
    Ok((pod, json!({"metadata": maps}).to_string()))
}

async fn patch(measurement: &Measurement, mut permit: CallPermit) -> Result<Outcome, String> {
    let (pod, patch) = measurement.filled(&mut permit, pod_patch).await?;
    measurement.cluster()?.patch_pod(permit.namespace(), &pod, patch).await?;
    Ok(Outcome { phase: HookPhase::Successful, ..Outcome::default() })
}
