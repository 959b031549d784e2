//! Which cluster, as whom, and how it is reached: what kubectl makes of the kubeconfig and its options.

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

/// How long it may take until there is a connection: what kubectl gives a handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// How the cluster is reached that the options and the environment name.
pub async fn config(options: &ClusterOptions) -> Result<Config, Error> {
    let env = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let files = Files::find(options.kubeconfig.as_deref(), &env);
    let mut config = match files.read()? {
        Some(kubeconfig) => of_kubeconfig(kubeconfig, options).await?,
        // Within a cluster there is none, but for a service account.
        None => Config::incluster().map_err(|_| files.missing())?,
    };
    if let Some(user) = &options.as_user {
        config.auth_info.impersonate = Some(user.clone());
    }
    if !options.as_group.is_empty() {
        config.auth_info.impersonate_groups = Some(options.as_group.clone());
    }
    config.connect_timeout = Some(CONNECT);
    // It would wait for minutes for a server that is down.
    config.default_retry = false;
    Ok(config)
}

async fn of_kubeconfig(kubeconfig: Kubeconfig, options: &ClusterOptions) -> Result<Config, Error> {
    let contexts = kubeconfig.contexts.iter().map(|it| it.name.as_str());
    is_there("context", options.context.as_deref(), contexts)?;
    let clusters = kubeconfig.clusters.iter().map(|it| it.name.as_str());
    is_there("cluster", options.cluster.as_deref(), clusters)?;
    let users = kubeconfig.auth_infos.iter().map(|it| it.name.as_str());
    is_there("user", options.user.as_deref(), users)?;
    let choice = KubeConfigOptions {
        context: options.context.clone(),
        cluster: options.cluster.clone(),
        user: options.user.clone(),
    };
    let named = proxy::of(&kubeconfig, &choice).map(str::to_owned);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &choice)
        .await
        .map_err(|error| Error::Config(with_causes(&error)))?;
    let env = |name: &str| std::env::var(name).ok();
    let proxy = proxy::choose(named.as_deref(), &config.cluster_url, env);
    config.proxy_url = proxy.map_err(|error| Error::Config(with_causes(&error)))?;
    Ok(config)
}

/// Whether there is something of that name, if one is asked for.
fn is_there<'a>(
    what: &str,
    wanted: Option<&str>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let names: Vec<&str> = names.collect();
    let Some(wanted) = wanted.filter(|wanted| !names.contains(wanted)) else {
        return Ok(());
    };
    let hint = match closest(wanted, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are: {}", names.join(", ")),
    };
    let missing = format!("{what} {wanted:?} does not exist: {hint}");
    Err(Error::Config(missing))
}

/// Kubeconfigs, and whether it is a mistake when one is missing.
enum Files {
    /// `--kubeconfig`.
    Named(PathBuf),
    /// KUBECONFIG, or `~/.kube/config`.
    Maybe(Vec<PathBuf>),
}

impl Files {
    fn find(named: Option<&Path>, env: &OsStr) -> Self {
        if let Some(path) = named {
            return Files::Named(path.to_owned());
        }
        let of_env = std::env::split_paths(env).filter(|path| !path.as_os_str().is_empty());
        let mut files: Vec<PathBuf> = of_env.collect();
        if files.is_empty() {
            files.extend(std::env::home_dir().map(|home| home.join(".kube").join("config")));
        }
        Files::Maybe(files)
    }

    /// All of them as one; None when there is none.
    fn read(&self) -> Result<Option<Kubeconfig>, Error> {
        let merged = match self {
            Files::Named(path) => read(path).map(Some),
            Files::Maybe(paths) => paths.iter().try_fold(None, |merged, path| {
                let next = match read(path) {
                    Err(KubeconfigError::ReadConfig(error, _))
                        if error.kind() == ErrorKind::NotFound =>
                    {
                        return Ok(merged);
                    }
                    next => next?,
                };
                merged
                    .unwrap_or_else(Kubeconfig::default)
                    .merge(next)
                    .map(Some)
            }),
        };
        merged.map_err(|error| Error::Config(with_causes(&error)))
    }

    fn missing(&self) -> Error {
        let paths = match self {
            Files::Named(path) => std::slice::from_ref(path),
            Files::Maybe(paths) => paths,
        };
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Error::Config(format!("there is none: {}", paths.join(", ")))
    }
}

fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut kubeconfig = Kubeconfig::read_from(path)?;
    // An empty name is none, and leaves the choice to the next file.
    kubeconfig.current_context = kubeconfig.current_context.filter(|name| !name.is_empty());
    Ok(kubeconfig)
}
