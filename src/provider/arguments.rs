//! Looks up what one measurement needs besides its metric: values of arguments, and Secrets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::call_permit::{CallPermit, MAX_SHORT_TEXT};
use super::keys::{Keys, TooLong};
use super::measure::Probe;
use super::own_pod::POD_ARGUMENTS;
use super::secrets::Secrets;
use gamekeeper_core::api::{Argument, ArgumentSource, FieldRef, HookRun, Provider, SecretKeyRef};
use gamekeeper_core::expr::Document;
use gamekeeper_core::expr::field::{NoField, field};
use gamekeeper_core::hook_run::used_arguments;

/// How many bytes, in total, a measurement with a permit for long texts may look up.
const MAX_LOOKED_UP: usize = 256 << 10;

/// What was looked up for one measurement.
#[derive(Default)]
pub(super) struct Arguments {
    /// The values that were looked up, by argument.
    values: HashMap<String, String>,
    /// The values that must not be shown.
    pub secrets: Secrets,
    /// The keys of Secrets that the arguments, the authentication and the CA of the call need.
    pub keys: Keys,
}

/// The sources of the arguments that a metric uses.
#[derive(Default)]
struct Sources {
    /// The name of each argument that refers to a field of the run, with the value of the field.
    fields: Vec<(String, String)>,
    /// The name of each argument that refers to a Secret, with the key that contains the value.
    keys: Vec<(String, SecretKeyRef)>,
}

impl Arguments {
    /// Looks up only what one metric of a run needs, because a missing Secret of another metric must not block this
    /// one. Secrets are read for each measurement, and are not kept.
    pub(super) async fn look_up(
        probe: &Probe,
        run: &Arc<HookRun>,
        metric: usize,
        permit: &mut CallPermit,
    ) -> Result<Self, String> {
        loop {
            let max = if permit.allows_long_texts() { MAX_LOOKED_UP } else { MAX_SHORT_TEXT };
            match Self::look_up_within(probe, run, metric, max, permit).await? {
                Ok(arguments) => return Ok(arguments),
                Err(TooLong) if max < MAX_LOOKED_UP => permit.grow().await,
                Err(TooLong) => {
                    let max = MAX_LOOKED_UP >> 10;
                    return Err(format!(
                        "the Secrets and fields of the run that the metric uses are longer than {max} KiB in total"
                    ));
                }
            }
        }
    }

    /// Like [`Self::look_up`], with at most `max` bytes of values.
    async fn look_up_within(
        probe: &Probe,
        run: &Arc<HookRun>,
        metric: usize,
        max: usize,
        permit: &mut CallPermit,
    ) -> Result<Result<Self, TooLong>, String> {
        let sources = match Sources::find(probe, run, metric, max).await? {
            Ok(sources) => sources,
            Err(TooLong) => return Ok(Err(TooLong)),
        };
        let mut keys = Keys::default();
        sources.keys.iter().for_each(|(_, key)| keys.add(key));
        keys.add_credentials(&run.spec.metrics[metric]);
        let length_of_fields: usize = sources.fields.iter().map(|(_, value)| value.len()).sum();
        if let Some(cluster) = &probe.cluster
            && let Err(TooLong) = keys.read(cluster, permit, max - length_of_fields).await
        {
            return Ok(Err(TooLong));
        }
        let mut secrets = Secrets::default();
        let mut values: HashMap<String, String> = sources.fields.into_iter().collect();
        for (name, key) in sources.keys {
            let value = keys.get(&key);
            let value = value.map_err(|why| format!("argument {name}: {why}"))?;
            secrets.add(value);
            values.insert(name, value.to_owned());
        }
        Ok(Ok(Arguments { values, secrets, keys }))
    }

    /// The values of this run's arguments, by name; arguments without a value are left out.
    pub(super) fn values<'a>(&'a self, run: &'a HookRun) -> HashMap<&'a str, &'a str> {
        let looked_up = self.values.iter();
        let looked_up = looked_up.map(|(name, value)| (name.as_str(), value.as_str()));
        let given = run.spec.args.iter();
        let given = given.filter_map(|it| Some((it.name.as_str(), it.value.as_deref()?)));
        looked_up.chain(given).collect()
    }
}

impl Sources {
    /// Finds the sources, and the values of fields. This takes a while for a large run, so it is done on the
    /// evaluation pool.
    async fn find(
        probe: &Probe,
        run: &Arc<HookRun>,
        metric: usize,
        max: usize,
    ) -> Result<Result<Self, TooLong>, String> {
        let is_looked_up = |argument: &Argument| source(argument).is_some();
        if !run.spec.args.iter().any(is_looked_up) {
            return Ok(Ok(Sources::default()));
        }
        let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
        let run = Arc::clone(run);
        let found = probe.evaluation.run(namespace, move || Sources::of(&run, metric, max));
        found.await.map_err(|panicked| panicked.to_string())?
    }

    fn of(run: &HookRun, metric: usize, mut max: usize) -> Result<Result<Self, TooLong>, String> {
        let metric = &run.spec.metrics[metric];
        let mut used: HashSet<String> = used_arguments(metric).into_iter().collect();
        if metric.provider.given().any(Provider::concerns_pod) {
            used.extend(POD_ARGUMENTS.map(str::to_owned));
        }
        let (mut sources, mut object) = (Sources::default(), None);
        for argument in &run.spec.args {
            let name = &argument.name;
            let Some(source) = source(argument).filter(|_| used.contains(name)) else {
                continue;
            };
            if let Some(key) = &source.secret_key_ref {
                sources.keys.push((name.clone(), key.clone()));
            } else if let Some(FieldRef { field_path }) = &source.field_ref {
                let failed = |why: String| format!("argument {name}: {why}");
                if object.is_none() {
                    object = Some(as_json(run).map_err(failed)?);
                }
                let value = field_of(object.as_ref().unwrap_or(&Value::Null), field_path);
                let value = value.map_err(failed)?;
                let Some(left) = max.checked_sub(value.len()) else {
                    return Ok(Err(TooLong));
                };
                max = left;
                sources.fields.push((name.clone(), value));
            }
        }
        Ok(Ok(sources))
    }
}

/// The source of an argument's value; None if the value is given.
fn source(argument: &Argument) -> Option<&ArgumentSource> {
    let source = argument.value_from.as_ref();
    source.filter(|_| argument.value.is_none())
}

/// The run as JSON, in which fields are looked up.
fn as_json(run: &HookRun) -> Result<Value, String> {
    let text = serde_json::to_vec(run).map_err(|error| error.to_string())?;
    match Document::read(&text) {
        Ok(Document::Json(object)) => Ok(object),
        _ => Err("the HookRun is too large to take fields from".into()),
    }
}

/// The value of a field of the run itself.
fn field_of(object: &Value, path: &str) -> Result<String, String> {
    field(object, path).map_err(|none| match none {
        NoField::NotSet => format!("{path} of the HookRun is not set"),
        NoField::Bad(why) => why,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::HttpOptions;

    fn run(url: &str, metric: &str) -> Arc<HookRun> {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let run = json!({
            "metadata": {"namespace": "games", "name": "run", "labels": {"example.com/team": "red"}},
            "spec": {
                "args": [
                    {"name": "PodIP", "value": "127.9.0.4"},
                    {"name": "unset"},
                    {"name": "namespace", "valueFrom": field("metadata.namespace")},
                    {"name": "team", "valueFrom": field("metadata.labels['example.com/team']")},
                    {"name": "none", "valueFrom": field("metadata.labels.none")},
                    {"name": "spec", "valueFrom": field("{.spec}")},
                    {"name": "token", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "metrics": [{"name": metric, "provider": {"web": {"url": url}}}],
            },
        });
        Arc::new(serde_json::from_value(run).expect("a run"))
    }

    /// The sorted argument values of a metric with this URL, or the error.
    async fn values_for_url(url: &str) -> Result<Vec<String>, String> {
        values_for_run(&run(url, "web")).await
    }

    async fn values_for_run(run: &Arc<HookRun>) -> Result<Vec<String>, String> {
        let probe = Probe::new(HttpOptions::default(), None).expect("a probe");
        let mut permit = probe.limits.enter("games").await;
        let arguments = Arguments::look_up(&probe, run, 0, &mut permit).await?;
        let values = arguments.values(run);
        let mut values: Vec<_> =
            values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        values.sort();
        Ok(values)
    }

    #[tokio::test]
    async fn fields_of_the_run_can_be_arguments() {
        let values = values_for_url("http://{{args.team}}/{{args.namespace}}").await;
        let expected = ["PodIP=127.9.0.4", "namespace=games", "team=red"];
        assert_eq!(values, Ok(expected.map(str::to_owned).to_vec()));
        let error = values_for_url("http://{{ args.none }}").await;
        let expected = "argument none: metadata.labels.none of the HookRun is not set";
        assert_eq!(error, Err(expected.to_owned()));
    }

    #[tokio::test]
    async fn values_that_a_metric_does_not_use_are_not_looked_up() {
        let values = values_for_url("http://{{ args.PodIP }}").await;
        assert_eq!(values, Ok(vec!["PodIP=127.9.0.4".to_owned()]));
        let error = values_for_url("http://{{ args.token }}").await;
        assert_eq!(error, Err("argument token: needs a cluster".to_owned()));
    }

    #[tokio::test]
    async fn the_length_of_looked_up_values_is_bounded() {
        let long = |length: usize| run("http://{{ args.spec }}", &"x".repeat(length));
        for length in [10, MAX_SHORT_TEXT, MAX_LOOKED_UP - MAX_SHORT_TEXT] {
            assert!(values_for_run(&long(length)).await.is_ok(), "{length}");
        }
        let error = values_for_run(&long(MAX_LOOKED_UP)).await.expect_err("too long");
        assert!(error.ends_with("longer than 256 KiB in total"), "{error}");
    }
}
