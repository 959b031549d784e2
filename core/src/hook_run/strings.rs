//! The strings in JSON into which arguments are filled, with their field paths.
//!
//! JSON is processed as it is read: maps built from it would take many times its length in memory.
//! Arguments are filled into all strings of a jsonBody, and into command, args and env of a Job's containers.

use std::fmt::{self, Display};

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::{Allowance, ArgumentError, fill};
use crate::api::RawJson;

/// Called with the field path and the value of each string.
pub type Visit<'a> = &'a mut dyn FnMut(&dyn Display, &str);

/// What a place in JSON contains, as far as arguments are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Any JSON. Arguments are filled into all strings except the names of fields.
    Filled,
    /// Any JSON. Arguments are not filled in.
    Verbatim,
    /// The spec of a Job.
    JobSpec,
    /// The pod template of a Job.
    PodTemplate,
    /// The spec of a pod template.
    PodSpec,
    /// A list of containers.
    Containers,
    /// A container.
    Container,
}

impl Place {
    /// The place of the field with this name.
    fn field(self, name: &str) -> Self {
        match (self, name) {
            (Place::Filled, _) => Place::Filled,
            (Place::JobSpec, "template") => Place::PodTemplate,
            (Place::PodTemplate, "spec") => Place::PodSpec,
            (Place::PodSpec, "containers" | "initContainers") => Place::Containers,
            (Place::Container, "command" | "args" | "env") => Place::Filled,
            _ => Place::Verbatim,
        }
    }

    /// The place of an item of a list.
    fn item(self) -> Self {
        match self {
            Place::Filled => Place::Filled,
            Place::Containers => Place::Container,
            _ => Place::Verbatim,
        }
    }
}

/// Visits the strings in JSON up to the first syntax error, which is reported when the JSON is used.
pub fn visit_json(json: &RawJson, path: &dyn Display, place: Place, visit: Visit<'_>) {
    let _ = walk(json, path, place, &mut Visiting(visit));
}

/// JSON with arguments filled in; everything else is unchanged.
///
/// # Errors
/// If an argument cannot be filled in, or the JSON is malformed.
pub fn fill_json<'v>(
    json: &RawJson,
    place: Place,
    allowance: &mut Allowance,
    value_of: &dyn Fn(&str) -> Option<&'v str>,
) -> Result<String, ArgumentError> {
    let mut writing = Writing { text: String::new(), allowance, value_of };
    walk(json, &"", place, &mut writing)?;
    Ok(writing.text)
}

/// Receives the pieces of JSON in a walk.
trait Sink {
    /// A string into which arguments are filled, and its field path.
    fn text(&mut self, path: &dyn Display, text: &str) -> Result<(), ArgumentError>;

    /// Any other piece of JSON.
    fn json(&mut self, _: &str) -> Result<(), ArgumentError> {
        Ok(())
    }
}

struct Visiting<'a>(Visit<'a>);

impl Sink for Visiting<'_> {
    fn text(&mut self, path: &dyn Display, text: &str) -> Result<(), ArgumentError> {
        (self.0)(path, text);
        Ok(())
    }
}

struct Writing<'a, 'v> {
    text: String,
    allowance: &'a mut Allowance,
    value_of: &'a dyn Fn(&str) -> Option<&'v str>,
}

impl Sink for Writing<'_, '_> {
    fn text(&mut self, _: &dyn Display, text: &str) -> Result<(), ArgumentError> {
        let filled = fill(text, self.allowance, self.value_of)?;
        let encoded = quoted(&filled);
        self.allowance.take(encoded.len() - filled.len())?;
        self.text.push_str(&encoded);
        Ok(())
    }

    fn json(&mut self, json: &str) -> Result<(), ArgumentError> {
        self.allowance.take(json.len())?;
        self.text.push_str(json);
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn walk(
    json: &RawJson,
    path: &dyn Display,
    place: Place,
    sink: &mut dyn Sink,
) -> Result<(), ArgumentError> {
    let mut reader = serde_json::Deserializer::from_str(json.text());
    let mut stopped = None;
    let walk = Walk { path, place, prefix: "", sink, stopped: &mut stopped };
    let walked = walk.deserialize(&mut reader);
    match (stopped, walked) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(ArgumentError::InvalidJson(error.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

/// A walk through JSON as it is read.
struct Walk<'a> {
    path: &'a dyn Display,
    place: Place,
    /// The JSON between the previous value and this one.
    prefix: &'a str,
    sink: &'a mut dyn Sink,
    /// Why the sink stopped the walk. Kept here, because the reader's errors have a different type.
    stopped: &'a mut Option<ArgumentError>,
}

impl Walk<'_> {
    fn json<E: de::Error>(&mut self, json: &str) -> Result<(), E> {
        let result = self.sink.json(json);
        self.proceed(result)
    }

    fn proceed<E: de::Error>(&mut self, result: Result<(), ArgumentError>) -> Result<(), E> {
        result.map_err(|error| {
            *self.stopped = Some(error);
            E::custom("stopped")
        })
    }

    /// A walk through a value inside this one.
    fn inside<'b>(&'b mut self, path: &'b dyn Display, place: Place, prefix: &'b str) -> Walk<'b> {
        Walk { path, place, prefix, sink: &mut *self.sink, stopped: &mut *self.stopped }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        self.json(self.prefix)?;
        match self.place {
            Place::Verbatim => self.json(<&RawValue>::deserialize(deserializer)?.get()),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: de::Error>(mut self, text: &str) -> Result<(), E> {
        let result = match self.place {
            Place::Filled => self.sink.text(self.path, text),
            _ => self.sink.json(&quoted(text)),
        };
        self.proceed(result)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let (parent, place) = (self.path, self.place.item());
        self.json("[")?;
        for index in 0.. {
            let prefix = if index == 0 { "" } else { "," };
            let path = Item { parent, index };
            let item = self.inside(&path, place, prefix);
            if items.next_element_seed(item)?.is_none() {
                break;
            }
        }
        self.json("]")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let parent = self.path;
        self.json("{")?;
        let mut comma = "";
        while let Some(name) = fields.next_key::<String>()? {
            let prefix = &format!("{}{}:", std::mem::replace(&mut comma, ","), quoted(&name));
            let (name, place) = (&name, self.place.field(&name));
            fields.next_value_seed(self.inside(&Field { parent, name }, place, prefix))?;
        }
        self.json("}")
    }

    fn visit_bool<E: de::Error>(mut self, value: bool) -> Result<(), E> {
        self.json(if value { "true" } else { "false" })
    }

    fn visit_i64<E: de::Error>(mut self, value: i64) -> Result<(), E> {
        self.json(&value.to_string())
    }

    fn visit_u64<E: de::Error>(mut self, value: u64) -> Result<(), E> {
        self.json(&value.to_string())
    }

    fn visit_f64<E: de::Error>(mut self, value: f64) -> Result<(), E> {
        self.json(&Value::from(value).to_string())
    }

    fn visit_unit<E: de::Error>(mut self) -> Result<(), E> {
        self.json("null")
    }
}

/// The path of a field.
struct Field<'a> {
    parent: &'a dyn Display,
    name: &'a str,
}

impl Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.parent, self.name)
    }
}

/// The path of an item of a list.
struct Item<'a> {
    parent: &'a dyn Display,
    index: usize,
}

impl Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.parent, self.index)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hook_run::visit_strings;

    fn filled(json: &str, place: Place, value: &str) -> Result<String, ArgumentError> {
        let json: RawJson = serde_json::from_str(json).expect("JSON");
        let value_of = |name: &str| (name == "a").then_some(value);
        fill_json(&json, place, &mut Allowance::default(), &value_of)
    }

    #[test]
    fn all_strings_of_a_body_are_filled_in_and_nothing_else_changes() {
        for (json, expected) in [
            (
                r#"{"b": ["{{ args.a }}", {"{{ args.a }}": "x{{args.a}}"}], "a": "\u007b{ args.a }}"}"#,
                r#"{"b":["\"\n",{"{{ args.a }}":"x\"\n"}],"a":"\"\n"}"#,
            ),
            (
                r#"[[],{},null,true,false,1.5,-7,18446744073709551615,"","ä"]"#,
                r#"[[],{},null,true,false,1.5,-7,18446744073709551615,"","ä"]"#,
            ),
        ] {
            assert_eq!(filled(json, Place::Filled, "\"\n"), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn command_args_and_env_of_a_jobs_containers_are_filled_in() {
        let argument = json!(["{{ args.a }}"]);
        let container =
            json!({"args": argument, "command": argument, "env": argument, "name": argument});
        let pod = json!({"containers": [container], "initContainers": [container], "volumes": [container]});
        let spec =
            json!({"template": {"spec": pod, "metadata": argument}, "containers": [container]});
        let mut expected = spec.clone();
        for list in ["containers", "initContainers"] {
            for part in ["command", "args", "env"] {
                expected["template"]["spec"][list][0][part] = json!(["!"]);
            }
        }
        let filled = filled(&spec.to_string(), Place::JobSpec, "!").expect("a spec");
        assert_eq!(filled.parse::<Value>().expect("JSON"), expected);
    }

    #[test]
    fn strings_are_visited_with_their_fields() {
        let metric = json!({"name": "m", "provider": {
            "web": {"url": "u", "headers": [{"key": "k", "value": "h"}], "jsonBody": {"a": ["x", {"b": "y"}]}},
            "job": {"spec": {"template": {"spec": {"containers": [{"image": "i", "env": [{"name": "n"}]}]}}}},
            "exec": {"container": "c", "command": ["p", "x"]},
        }});
        let metric = serde_json::from_value(metric).expect("a metric");
        let mut visited = Vec::new();
        visit_strings(&metric, &mut |field, text| visited.push(format!("{field} {text}")));
        assert_eq!(
            visited,
            [
                "provider.web.url u",
                "provider.web.headers[0].value h",
                "provider.web.jsonBody.a[0] x",
                "provider.web.jsonBody.a[1].b y",
                "provider.job.spec.template.spec.containers[0].env[0].name n",
                "provider.exec.container c",
                "provider.exec.command[0] p",
                "provider.exec.command[1] x",
            ]
        );
    }

    #[test]
    fn json_that_cannot_be_parsed_is_an_error() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let error = filled(&deep, Place::Filled, "").expect_err("too deep");
        assert!(matches!(error, ArgumentError::InvalidJson(_)), "{error}");
    }
}
