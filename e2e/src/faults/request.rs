//! The verb and resource of a request, parsed from its method and path.

use std::fmt;

use http::{Method, Uri};

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes an object.
    Delete,
}

impl Verb {
    /// Whether a request with this verb changes anything.
    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        })
    }
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The verb.
    pub verb: Verb,
    /// Plural name of the resource; empty for paths without one, such as /version.
    pub resource: String,
    /// Whether the request is a dry run.
    pub is_dry_run: bool,
}

impl RequestInfo {
    /// Parses a request's method and URI.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |pair: &str| query.split('&').any(|other| other == pair);
        let (resource, is_named) = resource(uri.path());
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if has("watch=1") || has("watch=true") => Verb::Watch,
            _ if is_named => Verb::Get,
            _ => Verb::List,
        };
        RequestInfo { verb, resource: resource.to_owned(), is_dry_run: has("dryRun=All") }
    }
}

/// The resource in a path, and whether the path names one of its objects.
fn resource(path: &str) -> (&str, bool) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let has_version = match parts.next() {
        Some("api") => parts.next().is_some(),
        Some("apis") => parts.next().and(parts.next()).is_some(),
        _ => false,
    };
    if !has_version {
        return ("", true);
    }
    let rest: Vec<&str> = parts.collect();
    match rest.as_slice() {
        ["namespaces", _, resource, rest @ ..] | [resource, rest @ ..] => {
            (resource, !rest.is_empty())
        }
        [] => ("", true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_and_resource_follow_from_method_and_path() {
        let games = "/apis/tkex.tencent.com/v1alpha1/namespaces/x/gamedeployments";
        let cases = [
            ("GET", "/version", Verb::Get, ""),
            ("GET", "/api/v1/nodes?limit=1", Verb::List, "nodes"),
            ("GET", "/api/v1/pods?allowWatchBookmarks=true&watch=1", Verb::Watch, "pods"),
            ("GET", "/api/v1/namespaces/x", Verb::Get, "namespaces"),
            ("POST", "/api/v1/namespaces/x/pods", Verb::Create, "pods"),
            ("PATCH", "/api/v1/namespaces/x/pods/p/status", Verb::Patch, "pods"),
            ("DELETE", "/api/v1/namespaces/x/pods/p", Verb::Delete, "pods"),
            ("PUT", &format!("{games}/g/status"), Verb::Update, "gamedeployments"),
            ("GET", &format!("{games}/g"), Verb::Get, "gamedeployments"),
        ];
        for (method, uri, verb, resource) in cases {
            let method = method.parse().expect("a method");
            let info = RequestInfo::parse(&method, &uri.parse().expect("a path"));
            assert_eq!((info.verb, info.resource.as_str()), (verb, resource), "{uri}");
        }
    }
}
