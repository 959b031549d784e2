//! The proxy in front of the API server, chosen as in kubectl: `proxy-url` in the kubeconfig; otherwise
//! HTTPS_PROXY, except for hosts in NO_PROXY and for this machine.
//!
//! The choice is not left to kube, which compares NO_PROXY with the proxy instead of the server, and would use a
//! proxy to reach this machine.

use std::net::IpAddr;

use http::Uri;
use http::uri::InvalidUri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The proxy for a server, if it needs one. `env` reads the environment.
pub fn choose(
    kubeconfig: Option<&str>,
    server: &Uri,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, InvalidUri> {
    if let Some(proxy) = kubeconfig.filter(|proxy| !proxy.is_empty()) {
        return parse(proxy).map(Some);
    }
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(&env);
        values.find(|value| !value.is_empty())
    };
    let proxy = match server.scheme_str() {
        Some("http") => first(["HTTP_PROXY", "http_proxy"]),
        _ => first(["HTTPS_PROXY", "https_proxy"]),
    };
    let Some(proxy) = proxy.filter(|_| !is_local(server)) else {
        return Ok(None);
    };
    let excluded = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let matcher = Matcher::builder().all(proxy.as_str()).no(excluded).build();
    match matcher.intercept(server) {
        Some(_) => parse(&proxy).map(Some),
        None => Ok(None),
    }
}

/// The `proxy-url` of the chosen cluster in a kubeconfig.
pub fn of_kubeconfig<'a>(
    kubeconfig: &'a Kubeconfig,
    choice: &KubeConfigOptions,
) -> Option<&'a str> {
    let cluster_of_context = || {
        let name = choice.context.as_ref().or(kubeconfig.current_context.as_ref())?;
        let context = kubeconfig.contexts.iter().find(|it| it.name == *name)?;
        Some(&context.context.as_ref()?.cluster)
    };
    let name = choice.cluster.as_ref().or_else(cluster_of_context)?;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == *name)?;
    cluster.cluster.as_ref()?.proxy_url.as_deref()
}

/// Whether a server is on this machine.
fn is_local(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Parses the URL of a proxy, which may lack a scheme.
fn parse(proxy: &str) -> Result<Uri, InvalidUri> {
    match proxy.contains("://") {
        true => proxy.parse(),
        false => format!("http://{proxy}").parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://api.games.example:6443";

    fn chosen(kubeconfig: Option<&str>, server: &str, env: &[(&str, &str)]) -> Option<String> {
        let env = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let server = server.parse().expect("a URI");
        let chosen = choose(kubeconfig, &server, env).expect("a valid proxy URL");
        chosen.map(|uri| uri.to_string())
    }

    #[test]
    fn the_kubeconfigs_proxy_takes_precedence() {
        let env = [("HTTPS_PROXY", "http://from-env:3128"), ("NO_PROXY", "*")];
        let configured = chosen(Some("http://configured:3128"), SERVER, &env);
        assert_eq!(configured.as_deref(), Some("http://configured:3128/"));
        assert_eq!(chosen(None, SERVER, &env), None);
        assert_eq!(chosen(Some(""), SERVER, &[]), None);
    }

    #[test]
    fn the_environments_proxy_is_used_for_remote_servers_unless_no_proxy_lists_them() {
        for (server, no_proxy, expected) in [
            (SERVER, "", Some("http://me:secret@from-env:3128/")),
            (SERVER, "other.example", Some("http://me:secret@from-env:3128/")),
            (SERVER, ".games.example", None),
            ("https://10.1.2.3:6443", "10.0.0.0/8", None),
            ("https://127.0.0.1:6443", "", None),
            ("https://[::1]:6443", "", None),
            ("https://localhost:6443", "", None),
            ("http://api.games.example", "", None),
        ] {
            let env = [("https_proxy", "me:secret@from-env:3128"), ("no_proxy", no_proxy)];
            let found = chosen(None, server, &env);
            assert_eq!(found.as_deref(), expected, "{server} {no_proxy}");
        }
    }
}
