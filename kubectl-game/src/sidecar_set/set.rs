//! A SidecarSet, in the form that views and changes use.

use gamekeeper_core::api::{ConditionType, SidecarSet, SidecarSetSpec, SidecarSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::ResourceExt;
use kube::core::{DynamicObject, Selector};
use serde_json::Value;

use crate::cluster::plain;
use crate::error::Error;

/// A SidecarSet.
#[derive(Clone, Debug)]
pub struct Set {
    pub typed: SidecarSet,
    /// The object as the API server returned it.
    pub object: Value,
}

impl Set {
    pub fn read(object: DynamicObject) -> Result<Self, Error> {
        let name = object.name_any();
        let unexpected = |error: serde_json::Error| {
            Error::Unexpected(format!(
                "sidecarset.tkex.tencent.com/{name}: the object is not a valid object of {}: {error}",
                gamekeeper_core::api::API_VERSION
            ))
        };
        let object = plain("SidecarSet", object).map_err(unexpected)?;
        let typed = serde_json::from_value(object.clone()).map_err(unexpected)?;
        Ok(Set { typed, object })
    }

    pub fn name(&self) -> &str {
        self.typed.metadata.name.as_deref().unwrap_or_default()
    }

    /// The set's name as kubectl prints it.
    pub fn full_name(&self) -> String {
        format!("sidecarset.{}/{}", gamekeeper_core::api::GROUP, self.name())
    }

    pub fn spec(&self) -> &SidecarSetSpec {
        &self.typed.spec
    }

    pub fn status(&self) -> SidecarSetStatus {
        self.typed.status.clone().unwrap_or_default()
    }

    pub fn created(&self) -> Option<&Time> {
        self.typed.metadata.creation_timestamp.as_ref()
    }

    pub fn is_deleting(&self) -> bool {
        self.typed.metadata.deletion_timestamp.is_some()
    }

    pub fn generation(&self) -> i64 {
        self.typed.metadata.generation.unwrap_or_default()
    }

    /// The selector of the set's pods, as text; None if it is invalid.
    pub fn selector(&self) -> Option<String> {
        selector_text(&self.spec().selector)
    }

    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        let status = self.typed.status.as_ref()?;
        let mut conditions = status.conditions.iter();
        conditions.find(|it| it.type_ == type_.as_str())
    }

    /// Ready and Injecting, if they are not as expected. The reason of a condition that is True may still name a
    /// problem.
    pub fn unexpected_conditions(&self) -> impl Iterator<Item = &Condition> {
        let expected =
            [(ConditionType::Ready, "AllPodsReady"), (ConditionType::Injecting, "Injecting")];
        let found = expected
            .into_iter()
            .filter_map(|(type_, reason)| Some((self.condition(type_)?, reason)));
        found
            .filter(|(it, reason)| it.status != "True" || it.reason != *reason)
            .map(|(condition, _)| condition)
    }
}

/// A selector as text; None if it is invalid.
pub fn selector_text(selector: &LabelSelector) -> Option<String> {
    let selector = Selector::try_from(selector.clone()).ok()?;
    Some(selector.to_string())
}
