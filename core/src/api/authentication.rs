//! Authentication of calls, with credentials from Secrets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SecretKeyRef, schema};

/// How a call is authenticated; exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::exactly_one_of(&["basic", "bearer", "oauth2"])]))]
pub struct Authentication {
    /// User and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuthentication>,
    /// A bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<BearerAuthentication>,
    /// OAuth2 client credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<OAuth2Authentication>,
}

/// User and password from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuthentication {
    /// The user name.
    pub username: SecretKeyRef,
    /// The password.
    pub password: SecretKeyRef,
}

/// A bearer token from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BearerAuthentication {
    /// The token.
    pub token: SecretKeyRef,
}

/// OAuth2 client credentials from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2Authentication {
    /// URL of the token endpoint.
    #[schemars(schema_with = "schema::url")]
    pub token_url: String,
    /// The client's id.
    pub client_id: SecretKeyRef,
    /// The client's secret.
    pub client_secret: SecretKeyRef,
    /// Requested scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub scopes: Vec<String>,
}
