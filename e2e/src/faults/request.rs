//! What a request asks of the API server, read from its method and path.

use std::fmt;

use http::{Method, Uri};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object is read.
    Get,
    /// A collection is read.
    List,
    /// A collection is followed.
    Watch,
    /// An object is made.
    Create,
    /// An object is replaced.
    Update,
    /// An object is changed.
    Patch,
    /// An object is deleted.
    Delete,
}

impl Verb {
    /// Whether it changes anything.
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

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What is to be done.
    pub verb: Verb,
    /// Plural name of the resource; empty for paths that are about none, such as /version.
    pub resource: String,
    /// Whether it is only asked what would be.
    pub is_dry_run: bool,
}

impl Asked {
    /// Reads a request.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |pair: &str| query.split('&').any(|it| it == pair);
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
        Asked {
            verb,
            resource: resource.to_owned(),
            is_dry_run: has("dryRun=All"),
        }
    }
}

/// The resource that a path is about, and whether it is about one object of it.
fn resource(path: &str) -> (&str, bool) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let behind_version = match parts.next() {
        Some("api") => parts.next().is_some(),
        Some("apis") => parts.next().and(parts.next()).is_some(),
        _ => false,
    };
    if !behind_version {
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
    fn a_request_is_told_by_its_method_and_path() {
        let game = "/apis/tkex.tencent.com/v1alpha1/namespaces/x/gamedeployments";
        let cases = [
            ("GET", "/version", Verb::Get, ""),
            ("GET", "/api/v1/nodes?limit=1", Verb::List, "nodes"),
            (
                "GET",
                "/api/v1/pods?allowWatchBookmarks=true&watch=1",
                Verb::Watch,
                "pods",
            ),
            ("GET", "/api/v1/namespaces/x", Verb::Get, "namespaces"),
            ("POST", "/api/v1/namespaces/x/pods", Verb::Create, "pods"),
            (
                "PATCH",
                "/api/v1/namespaces/x/pods/p/status",
                Verb::Patch,
                "pods",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/x/pods/p",
                Verb::Delete,
                "pods",
            ),
            (
                "PUT",
                &format!("{game}/g/status"),
                Verb::Update,
                "gamedeployments",
            ),
            ("GET", &format!("{game}/g"), Verb::Get, "gamedeployments"),
        ];
        for (method, uri, verb, resource) in cases {
            let method = method.parse().expect("a method");
            let asked = Asked::of(&method, &uri.parse().expect("a path"));
            assert_eq!(
                (asked.verb, asked.resource.as_str()),
                (verb, resource),
                "{uri}"
            );
        }
    }
}
