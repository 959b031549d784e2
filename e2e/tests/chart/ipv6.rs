//! An operator that reaches the API server and hooks over IPv6 alone, and is reached over IPv6 alone.

use std::net::Ipv6Addr;

use anyhow::{Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::cluster::link::Link;
use e2e::servers::hook_server::HookServer;
use e2e::workload::manifest::{Game, hook_template};
use tokio::net::TcpStream;

#[e2e::test]
async fn an_operator_works_on_ipv6_alone(case: &mut Case) -> Result<()> {
    let link = Link::over_ipv6(case.plane()).await?;
    let hooks = HookServer::start_at((Ipv6Addr::LOCALHOST, 0).into()).await?;
    case.operator.terminate().await?;
    case.operator.use_ipv6(&link)?;
    let webhook = Webhook::install_at(case, Ipv6Addr::LOCALHOST.into(), "2160h").await?;
    webhook.tls_handshake(case).await?;
    let ipv4 = TcpStream::connect(("127.0.0.1", case.operator.port()?)).await;
    ensure!(ipv4.is_err(), "the operator listens on IPv4, too");
    let (code, page) = case.operator.get("/metrics").await?;
    ensure!(code == 200 && page.ends_with("# EOF\n"), "{code}: {page}");

    let url = format!("http://[::1]:{}/", hooks.port());
    case.apply(hook_template("test", &url)).await?;
    case.apply(Game::in_place(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    case.until_settled(1).await?;
    ensure!(!hooks.calls("/").is_empty(), "the hook was not called");
    webhook.remove(case).await
}
