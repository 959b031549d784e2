//! The client's configuration, from the kubeconfig and the options, as in kubectl.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gamekeeper_core::causes::with_causes;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::error::Error;
use crate::options::ClusterOptions;
use crate::proxy;
use crate::suggest::closest;

/// kubectl's timeout for a TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn config(options: &ClusterOptions) -> Result<Config, Error> {
    let env = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let files = Files::find(options.kubeconfig.as_deref(), &env);
    let mut config = match files.read()? {
        Some(kubeconfig) => from_kubeconfig(kubeconfig, options).await?,
        // A pod has a service account instead of a kubeconfig.
        None => Config::incluster().map_err(|_| files.missing())?,
    };
    if let Some(user) = &options.as_user {
        config.auth_info.impersonate = Some(user.clone());
    }
    if !options.as_group.is_empty() {
        config.auth_info.impersonate_groups = Some(options.as_group.clone());
    }
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // kube's retries would wait minutes for a server that is down.
    config.default_retry = false;
    Ok(config)
}

async fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    options: &ClusterOptions,
) -> Result<Config, Error> {
    let contexts = kubeconfig.contexts.iter().map(|it| it.name.as_str());
    check_exists("context", options.context.as_deref(), contexts)?;
    let clusters = kubeconfig.clusters.iter().map(|it| it.name.as_str());
    check_exists("cluster", options.cluster.as_deref(), clusters)?;
    let users = kubeconfig.auth_infos.iter().map(|it| it.name.as_str());
    check_exists("user", options.user.as_deref(), users)?;
    let choice = KubeConfigOptions {
        context: options.context.clone(),
        cluster: options.cluster.clone(),
        user: options.user.clone(),
    };
    let configured = proxy::of_kubeconfig(&kubeconfig, &choice).map(str::to_owned);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &choice)
        .await
        .map_err(|error| Error::Config(with_causes(&error)))?;
    let env = |name: &str| std::env::var(name).ok();
    let proxy = proxy::choose(configured.as_deref(), &config.cluster_url, env);
    config.proxy_url = proxy.map_err(|error| Error::Config(with_causes(&error)))?;
    Ok(config)
}

/// Checks that the wanted name, if one is given, exists.
fn check_exists<'a>(
    kind: &str,
    wanted: Option<&str>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let names: Vec<&str> = names.collect();
    let Some(wanted) = wanted.filter(|wanted| !names.contains(wanted)) else {
        return Ok(());
    };
    let hint = match closest(wanted, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => format!("the kubeconfig has no {kind}s"),
        None => format!("choose one of {}", names.join(", ")),
    };
    let missing = format!("{kind} {wanted:?} does not exist: {hint}");
    Err(Error::Config(missing))
}

/// Paths of kubeconfigs.
enum Files {
    /// `--kubeconfig`, which must exist.
    Named(PathBuf),
    /// KUBECONFIG or `~/.kube/config`, which need not exist.
    Default(Vec<PathBuf>),
}

impl Files {
    fn find(named: Option<&Path>, env: &OsStr) -> Self {
        if let Some(path) = named {
            return Files::Named(path.to_owned());
        }
        let env_paths = std::env::split_paths(env).filter(|path| !path.as_os_str().is_empty());
        let mut files: Vec<PathBuf> = env_paths.collect();
        if files.is_empty() {
            files.extend(std::env::home_dir().map(|home| home.join(".kube").join("config")));
        }
        Files::Default(files)
    }

    /// The merged kubeconfig, if there is any.
    fn read(&self) -> Result<Option<Kubeconfig>, Error> {
        let merged = match self {
            Files::Named(path) => read(path).map(Some),
            Files::Default(paths) => paths.iter().try_fold(None, |merged, path| {
                let next = match read(path) {
                    Err(KubeconfigError::ReadConfig(error, _))
                        if error.kind() == ErrorKind::NotFound =>
                    {
                        return Ok(merged);
                    }
                    next => next?,
                };
                merged.unwrap_or_else(Kubeconfig::default).merge(next).map(Some)
            }),
        };
        merged.map_err(|error| Error::Config(with_causes(&error)))
    }

    fn missing(&self) -> Error {
        let paths = match self {
            Files::Named(path) => std::slice::from_ref(path),
            Files::Default(paths) => paths,
        };
        let paths = paths.iter().map(|path| path.display().to_string());
        let paths: Vec<String> = paths.collect();
        Error::Config(format!("not found: {}", paths.join(", ")))
    }
}

fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut kubeconfig = Kubeconfig::read_from(path)?;
    // An empty name leaves the choice to the next file.
    kubeconfig.current_context = kubeconfig.current_context.filter(|name| !name.is_empty());
    Ok(kubeconfig)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_exist_gets_a_hint() {
        let error = |names: &[&str]| {
            let checked = check_exists("user", Some("admin"), names.iter().copied());
            checked.expect_err("no such user").to_string()
        };
        for (names, hint) in [
            (&["admim", "dev"][..], "did you mean admim?"),
            (&["dev", "ops"], "choose one of dev, ops"),
            (&[], "the kubeconfig has no users"),
        ] {
            let expected = format!("kubeconfig: user \"admin\" does not exist: {hint}");
            assert_eq!(error(names), expected);
        }
    }
}
