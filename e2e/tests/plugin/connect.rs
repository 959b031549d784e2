//! How `kubectl game` finds the cluster: as kubectl does.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::process::command::run_to_end;
use e2e::servers::connect_proxy::ConnectProxy;
use serde_json::json;

use super::{ends, kubeconfig, says};

e2e::tests![
    a_proxy_is_used_where_kubectl_would_use_it,
    options_say_who_and_where_as_kubectls_do,
];

async fn a_proxy_is_used_where_kubectl_would_use_it(case: &mut Case) -> Result<()> {
    let proxy = ConnectProxy::start().await?;
    let through_proxy = kubeconfig(case, "with-proxy", |config| {
        config["clusters"][0]["cluster"]["proxy-url"] = json!(proxy.url());
    })?;
    for args in [&["get", "gamedeployments"][..], &["game", "get"]] {
        let before = proxy.tunnels();
        let mut command = case.kubectl_command(args).await?;
        command.env("KUBECONFIG", &through_proxy);
        let ended = run_to_end(&mut command).await?;
        ensure!(ended.code == 0, "{args:?}: {ended:?}");
        ensure!(proxy.tunnels() > before, "{args:?} went past the proxy");

        // A server on this machine needs none, whatever the environment says.
        let mut command = case.kubectl_command(args).await?;
        command.env("HTTPS_PROXY", "http://127.0.0.1:1");
        let ended = run_to_end(&mut command).await?;
        ensure!(ended.code == 0, "{args:?}: {ended:?}");
    }
    Ok(())
}

async fn options_say_who_and_where_as_kubectls_do(case: &mut Case) -> Result<()> {
    let config = kubeconfig(case, "of-two", |config| {
        let mut good = config["clusters"][0].clone();
        good["name"] = json!("good");
        let mut nobody = config["clusters"][0].clone();
        nobody["cluster"]["server"] = json!("https://127.0.0.1:1");
        config["clusters"] = json!([good, nobody]);
        config["users"][0]["name"] = json!("somebody-who-may");
    })?;
    for (args, code, words) in [
        (&[][..], 1, "refused"),
        (&["--cluster", "good"], 1, "cannot list resource"),
        (&["--cluster", "good", "--user", "somebody-who-may"], 0, ""),
        (&["--cluster", "god"], 1, "did you mean good?"),
        (&["--user", "x"], 1, "\"x\" does not exist"),
    ] {
        for program in [&["get", "gamedeployments"][..], &["game", "get"]] {
            let args = [program, args].concat();
            let mut command = case.kubectl_command(&args).await?;
            let ended = run_to_end(command.env("KUBECONFIG", &config)).await?;
            ensure!(ended.code == code, "{args:?}: {ended:?}");
            let is_ours = program[0] == "game";
            ensure!(
                !is_ours || ended.stderr.contains(words),
                "{args:?}: {ended:?}"
            );
        }
    }
    let cannot = "User \"somebody\" cannot list resource";
    says(case, &["get", "--as", "somebody"], cannot).await?;
    let group = ["--as-group", "system:masters"];
    let mighty = [&["get", "--as", "somebody"], &group[..]].concat();
    ends(case, 0, &mighty).await?;
    Ok(())
}
