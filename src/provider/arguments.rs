//! The arguments of one measurement, with their values.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use super::cluster::Cluster;
use super::field::{NoField, field};
use super::secrets::Secrets;
use crate::api::{Argument, HookRun, RawJson};
use crate::plan::hook_run::{Allowance, ArgumentError, Place, fill, fill_json};

/// Values by name.
#[derive(Clone, Default)]
pub(super) struct Arguments {
    values: BTreeMap<String, String>,
    /// Those of them that must not be shown.
    pub secrets: Secrets,
}

impl Arguments {
    /// The values of a run's arguments, as far as `names` asks for them: a Secret that one metric
    /// lacks must not hold up another. Secrets are read now, and kept nowhere.
    pub(super) async fn resolve(
        run: &HookRun,
        names: &[String],
        cluster: Option<&Cluster>,
    ) -> Result<Self, String> {
        let mut arguments = Arguments::default();
        for argument in &run.spec.args {
            if names.contains(&argument.name) {
                arguments.add(run, argument, cluster).await?;
            }
        }
        Ok(arguments)
    }

    async fn add(
        &mut self,
        run: &HookRun,
        argument: &Argument,
        cluster: Option<&Cluster>,
    ) -> Result<(), String> {
        let name = &argument.name;
        let source = argument.value_from.as_ref();
        let value = match (&argument.value, source) {
            (Some(value), _) => value.clone(),
            (None, None) => return Ok(()),
            (None, Some(source)) => match (&source.secret_key_ref, &source.field_ref) {
                (Some(key), _) => {
                    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
                    let cluster =
                        cluster.ok_or_else(|| format!("argument {name}: needs a cluster"))?;
                    let secret = cluster.secret(namespace, key).await;
                    let secret = secret.map_err(|why| format!("argument {name}: {why}"))?;
                    self.secrets.add(&secret);
                    secret
                }
                (None, Some(reference)) => field_of(run, &reference.field_path)
                    .map_err(|why| format!("argument {name}: {why}"))?,
                (None, None) => return Ok(()),
            },
        };
        self.values.insert(name.clone(), value);
        Ok(())
    }

    /// The value of an argument.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Fills arguments into a text.
    pub(super) fn fill(&self, text: &str) -> Result<String, ArgumentError> {
        fill(text, &mut Allowance::default(), |name| self.get(name))
    }

    /// Fills arguments into a URL. An IPv6 address gets the brackets that it needs as a host, so that
    /// `http://{{ args.PodIP }}:9091` works for every pod.
    pub(super) fn fill_url(&self, url: &str) -> Result<String, ArgumentError> {
        let (before, authority, after) = parts(url);
        let authority = self.fill_authority(authority)?;
        Ok(self.fill(before)? + &authority + &self.fill(after)?)
    }

    fn fill_authority(&self, authority: &str) -> Result<String, ArgumentError> {
        let bracketed: BTreeMap<&str, String> = self
            .values
            .iter()
            .filter(|(_, value)| value.parse::<Ipv6Addr>().is_ok())
            .map(|(name, value)| (name.as_str(), format!("[{value}]")))
            .collect();
        let filled = fill(authority, &mut Allowance::default(), |name| {
            bracketed
                .get(name)
                .map(String::as_str)
                .or_else(|| self.get(name))
        })?;
        // Where the template has brackets already.
        Ok(filled.replace("[[", "[").replace("]]", "]"))
    }

    /// Fills arguments into JSON.
    pub(super) fn fill_json(&self, json: &RawJson, place: Place) -> Result<String, ArgumentError> {
        fill_json(json, place, &mut Allowance::default(), &|name| {
            self.get(name)
        })
    }
}

/// A URL up to its authority (host and port), that, and the rest. One that begins with an argument
/// has the authority in its value.
fn parts(url: &str) -> (&str, &str, &str) {
    let Some(scheme) = url.find("://") else {
        return (url, "", "");
    };
    let (before, rest) = url.split_at(scheme + "://".len());
    // Names of arguments have none of these.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    (before, authority, after)
}

/// A field of the run itself.
fn field_of(run: &HookRun, path: &str) -> Result<String, String> {
    let object = serde_json::to_value(run).map_err(|error| error.to_string())?;
    field(&object, path).map_err(|none| match none {
        NoField::NotSet => format!("{path} of the HookRun is not set"),
        NoField::Bad(why) => why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ArgumentSource, FieldRef, HookRunSpec, SecretKeyRef};

    fn run() -> HookRun {
        let argument = |name: &str, value: Option<&str>, value_from| Argument {
            name: name.into(),
            value: value.map(Into::into),
            value_from,
        };
        let field = |path: &str| {
            let field_ref = Some(FieldRef {
                field_path: path.into(),
            });
            Some(ArgumentSource {
                field_ref,
                ..ArgumentSource::default()
            })
        };
        let secret = SecretKeyRef {
            name: "token".into(),
            key: "key".into(),
        };
        let secret = ArgumentSource {
            secret_key_ref: Some(secret),
            ..ArgumentSource::default()
        };
        let args = vec![
            argument("PodIP", Some("127.9.0.4"), None),
            argument("PodIP6", Some("fd00::4"), None),
            argument("unset", None, None),
            argument("namespace", None, field("metadata.namespace")),
            argument("team", None, field("metadata.labels['example.com/team']")),
            argument("none", None, field("metadata.labels.none")),
            argument("token", None, Some(secret)),
        ];
        let mut run = HookRun::new(
            "run",
            HookRunSpec {
                args,
                ..HookRunSpec::default()
            },
        );
        run.metadata.namespace = Some("games".into());
        run.metadata.labels = Some([("example.com/team".into(), "red".into())].into());
        run
    }

    async fn arguments(names: &[&str]) -> Result<Arguments, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Arguments::resolve(&run(), &names, None).await
    }

    #[tokio::test]
    async fn an_ipv6_address_gets_its_brackets_in_a_url() {
        let arguments = arguments(&["PodIP", "PodIP6"]).await.expect("arguments");
        let fill = |url| arguments.fill_url(url).expect("a URL");
        assert_eq!(
            fill("http://{{ args.PodIP }}:9091"),
            "http://127.9.0.4:9091"
        );
        assert_eq!(
            fill("http://{{ args.PodIP6 }}:9091"),
            "http://[fd00::4]:9091"
        );
        assert_eq!(
            fill("http://[{{ args.PodIP6 }}]:9091"),
            "http://[fd00::4]:9091"
        );
    }

    /// `[[:alpha:]]` is a class of Prometheus' expressions.
    #[tokio::test]
    async fn a_url_is_asked_for_as_it_is_written_behind_its_host() {
        let arguments = arguments(&["PodIP", "PodIP6"]).await.expect("arguments");
        let fill = |url: &str| arguments.fill_url(url).expect("a URL");
        for rest in [
            r#"/api?query={job=~"[[:alpha:]]+"}"#,
            "?a[[0]]=1",
            "#[[",
            "/a://[[b]]",
        ] {
            assert_eq!(
                fill(&format!("http://{{{{ args.PodIP6 }}}}:9091{rest}")),
                format!("http://[fd00::4]:9091{rest}")
            );
        }
        assert_eq!(
            fill("https://probe/{{ args.PodIP6 }}?to={{args.PodIP6}}&not={{args.PodIP}}"),
            "https://probe/fd00::4?to=fd00::4&not=127.9.0.4"
        );
        assert_eq!(fill("{{ args.PodIP }}/[[a]]"), "127.9.0.4/[[a]]");
    }

    #[tokio::test]
    async fn strings_at_any_depth_of_a_body_are_filled() {
        let arguments = arguments(&["PodIP"]).await.expect("arguments");
        let body = serde_json::json!({
            "ip": "{{ args.PodIP }}", "more": [{"n": 1, "t": "to {{args.PodIP}}"}],
        });
        let filled = arguments.fill_json(&RawJson::from(&body), Place::Text);
        let expected = r#"{"ip":"127.9.0.4","more":[{"n":1,"t":"to 127.9.0.4"}]}"#;
        assert_eq!(filled, Ok(expected.to_owned()));
    }

    #[tokio::test]
    async fn an_argument_without_a_value_is_an_error() {
        let arguments = arguments(&["unset"]).await.expect("arguments");
        let error = arguments.fill("{{ args.unset }}").expect_err("no value");
        assert_eq!(error, ArgumentError::NoValue("unset".into()));
    }

    #[tokio::test]
    async fn fields_of_the_run_can_be_arguments() {
        let arguments = arguments(&["namespace", "team"]).await.expect("arguments");
        assert_eq!(
            arguments.fill("{{args.team}} in {{args.namespace}}"),
            Ok("red in games".into())
        );
        let error = Arguments::resolve(&run(), &["none".to_owned()], None)
            .await
            .err();
        let expected = "argument none: metadata.labels.none of the HookRun is not set";
        assert_eq!(error.as_deref(), Some(expected));
    }

    #[tokio::test]
    async fn what_a_metric_does_not_use_is_not_looked_up() {
        assert!(arguments(&["PodIP"]).await.is_ok());
        let error = arguments(&["token"]).await.err();
        assert_eq!(error.as_deref(), Some("argument token: needs a cluster"));
    }
}
