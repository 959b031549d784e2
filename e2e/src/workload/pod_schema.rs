//! The fields of a pod template, as the API server's own OpenAPI schema lists them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::control_plane::ControlPlane;

/// The definition of a pod template.
pub const TEMPLATE: &str = "io.k8s.api.core.v1.PodTemplateSpec";

/// The definitions of the API server.
pub struct PodSchema(Value);

/// A field of an object.
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether an object must have it.
    pub required: bool,
    /// What it holds.
    pub shape: Shape<'a>,
}

/// What a field holds.
pub enum Shape<'a> {
    /// A scalar with this zero.
    Scalar(Value),
    /// An object of this definition.
    Object(&'a str),
    /// A list of objects of this definition.
    Objects(&'a str),
    /// A map of scalars.
    Map,
    /// A list of scalars, or something that no template has.
    Other,
}

/// Fields that no pod template has: the API server refuses the first, and sets the others.
const ABSENT: [&str; 3] = ["ephemeralContainers", "managedFields", "ownerReferences"];

impl PodSchema {
    /// Reads the schema.
    pub async fn read(plane: &ControlPlane) -> Result<Self> {
        let mut document = plane.get("/openapi/v3/api/v1").await?;
        let definitions = document["components"]["schemas"].take();
        definitions.get(TEMPLATE).context("the API server has no schema of pod templates")?;
        Ok(Self(definitions))
    }

    /// The fields of a definition.
    pub fn fields(&self, definition: &str) -> Vec<Field<'_>> {
        let schema = &self.0[definition];
        let required = schema["required"].as_array();
        let is_required = |name: &str| required.is_some_and(|it| it.iter().any(|it| it == name));
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties
            .filter(|(name, _)| !ABSENT.contains(&name.as_str()))
            .map(|(name, field)| Field {
                name,
                required: is_required(name),
                shape: self.shape(field),
            })
            .collect()
    }

    fn shape<'a>(&'a self, schema: &'a Value) -> Shape<'a> {
        let (schema, definition) = self.resolve(schema);
        let short_name = definition.rsplit('.').next().unwrap_or_default();
        match (short_name, schema["type"].as_str()) {
            ("Quantity", _) => Shape::Scalar(json!("0")),
            ("IntOrString", _) => Shape::Scalar(json!(0)),
            ("Time" | "FieldsV1", _) => Shape::Other,
            (_, Some("object")) if schema["properties"].is_object() => Shape::Object(definition),
            (_, Some("object")) => Shape::Map,
            (_, Some("array")) => match self.shape(&schema["items"]) {
                Shape::Object(definition) => Shape::Objects(definition),
                _ => Shape::Other,
            },
            (_, Some("string")) => Shape::Scalar(json!("")),
            (_, Some("boolean")) => Shape::Scalar(json!(false)),
            _ => Shape::Scalar(json!(0)),
        }
    }

    /// A schema or the definition that it refers to, with the definition's name.
    fn resolve<'a>(&'a self, schema: &'a Value) -> (&'a Value, &'a str) {
        let reference = schema.get("$ref").or_else(|| schema["allOf"][0].get("$ref"));
        let definition = reference.and_then(|it| it.as_str()?.rsplit('/').next());
        definition.map_or((schema, ""), |definition| (&self.0[definition], definition))
    }
}
