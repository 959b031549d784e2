//! `kubectl game` connects to the cluster as kubectl does.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::process::command::run_unchecked;
use e2e::servers::connect_proxy::ConnectProxy;
use serde_json::json;

use super::{exits_with, fails_with, kubeconfig};

#[e2e::test]
async fn a_proxy_is_used_as_in_kubectl(case: &mut Case) -> Result<()> {
    let proxy = ConnectProxy::start().await?;
    let proxy_config = kubeconfig(case, "with-proxy", |config| {
        config["clusters"][0]["cluster"]["proxy-url"] = json!(proxy.url());
    })?;
    for args in [&["get", "gamedeployments"][..], &["game", "get"]] {
        let before = proxy.tunnels();
        let mut command = case.kubectl_command(args).await?;
        command.env("KUBECONFIG", &proxy_config);
        let output = run_unchecked(&mut command).await?;
        ensure!(output.code == 0, "{args:?}: {output:?}");
        ensure!(proxy.tunnels() > before, "{args:?} did not use the proxy");

        // The proxy in the environment is not used for a server on this machine.
        let mut command = case.kubectl_command(args).await?;
        command.env("HTTPS_PROXY", "http://127.0.0.1:1");
        let output = run_unchecked(&mut command).await?;
        ensure!(output.code == 0, "{args:?}: {output:?}");
    }
    Ok(())
}

#[e2e::test]
async fn connection_options_work_as_in_kubectl(case: &mut Case) -> Result<()> {
    let config = kubeconfig(case, "two-clusters", |config| {
        let mut good = config["clusters"][0].clone();
        good["name"] = json!("good");
        let mut unreachable = config["clusters"][0].clone();
        unreachable["cluster"]["server"] = json!("https://127.0.0.1:1");
        config["clusters"] = json!([good, unreachable]);
        config["users"][0]["name"] = json!("permitted-user");
    })?;
    for (args, code, words) in [
        (&[][..], 1, "refused"),
        (&["--cluster", "good"], 1, "cannot list resource"),
        (&["--cluster", "good", "--user", "permitted-user"], 0, ""),
        (&["--cluster", "god"], 1, "did you mean good?"),
        (&["--user", "x"], 1, "\"x\" does not exist"),
    ] {
        for program in [&["get", "gamedeployments"][..], &["game", "get"]] {
            let args = [program, args].concat();
            let mut command = case.kubectl_command(&args).await?;
            let output = run_unchecked(command.env("KUBECONFIG", &config)).await?;
            ensure!(output.code == code, "{args:?}: {output:?}");
            let is_plugin = program[0] == "game";
            ensure!(!is_plugin || output.stderr.contains(words), "{args:?}: {output:?}");
        }
    }
    let error = "User \"other-user\" cannot list resource";
    fails_with(case, &["get", "--as", "other-user"], error).await?;
    let group = ["--as-group", "system:masters"];
    let as_admin = [&["get", "--as", "other-user"], &group[..]].concat();
    exits_with(case, 0, &as_admin).await?;
    Ok(())
}
