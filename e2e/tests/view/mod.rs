//! The page of `kubectl game view`, in a real browser.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use e2e::browser::{Tab, Theme};
use e2e::checkout::repository;
use e2e::wait::LIMIT;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

mod cluster;
mod gate;
mod looks;
mod stories;

/// Checks what holds for each state of the page, in both themes: axe finds nothing, and whatever can be acted on has a
/// role and a name.
async fn ensure_accessible(tab: &Tab, state: &str) -> Result<()> {
    let acted_on = ["button", "link", "textbox", "searchbox", "spinbutton", "combobox", "checkbox"];
    for (role, name) in tab.accessible().await? {
        let needs_name = acted_on.contains(&role.as_str());
        ensure!(!needs_name || !name.trim().is_empty(), "{state}: a {role} has no name");
    }
    let Some(axe) = axe().await? else {
        return Ok(());
    };
    for theme in Theme::ALL {
        tab.prefer(theme).await?;
        // The security policy of the page does not apply to what the test itself evaluates.
        tab.evaluate(&axe).await?;
        let found = tab
            .evaluate(
                "axe.run(document, {resultTypes: ['violations']}).then((it) => it.violations.map((v) => \
                 `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html + ' ' + n.failureSummary).join(' | ')}`))",
            )
            .await?;
        let found = found.as_array().context("no list")?;
        ensure!(found.is_empty(), "{state}, {}: {found:#?}", theme.name());
    }
    Ok(())
}

/// The script of axe-core; None, after one line that says so, without npm.
async fn axe() -> Result<Option<String>> {
    static MODULES: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    let install = async || {
        let output = Command::new(repository().join("checks/page-tools.sh")).output().await?;
        let text = String::from_utf8(output.stdout)?.trim().to_owned();
        if !output.status.success() || text.is_empty() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            eprintln!("axe-core is not used: it cannot be installed with npm here {error}");
            return Ok(None);
        }
        anyhow::Ok(Some(PathBuf::from(text)))
    };
    let Some(modules) = MODULES.get_or_try_init(install).await? else {
        return Ok(None);
    };
    Ok(Some(std::fs::read_to_string(modules.join("axe-core/axe.min.js"))?))
}

/// Sends a request with exactly these headers, and returns the status code and the whole response.
async fn raw(
    origin: &str,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = origin.strip_prefix("http://").context("no host")?;
    let mut stream = tokio::net::TcpStream::connect(host).await?;
    let mut text =
        format!("{request} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).await?;
    let mut response = Vec::new();
    // A stream of events does not end: what comes first is enough.
    let mut buffer = [0; 65536];
    while !response.windows(4).any(|four| four == b"\r\n\r\n") {
        match timeout(LIMIT, stream.read(&mut buffer)).await?? {
            0 => break,
            count => response.extend_from_slice(&buffer[..count]),
        }
    }
    let response = String::from_utf8_lossy(&response).into_owned();
    let Some(code) = response.split(' ').nth(1) else {
        bail!("no response to {request}");
    };
    Ok((code.parse()?, response))
}
