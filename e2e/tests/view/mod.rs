//! The page of `kubectl game view`, in a real browser.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::browser::{Browser, Tab, Theme};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::trial::Test;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;

mod cluster;
mod gate;
mod looks;
mod stories;

/// The tests of these modules.
pub fn tests() -> Vec<Test> {
    [stories::tests(), gate::tests(), cluster::tests()].into_iter().flatten().collect()
}

/// A running `kubectl game view`.
struct Server {
    _child: Child,
    /// The address with the one-time token.
    address: String,
}

impl Server {
    /// Starts `kubectl game view --no-open` with more arguments, as the user of the case.
    async fn start(case: &Case, args: &[&str]) -> Result<Self> {
        Self::run(case.kubectl_command(&[&["game", "view", "--no-open"], args].concat()).await?)
            .await
    }

    async fn run(mut command: Command) -> Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let line = timeout(Duration::from_secs(60), lines.next_line()).await??;
        let line = line.context("it printed nothing")?;
        let address = line.strip_prefix("open ").with_context(|| format!("it printed {line}"))?;
        Ok(Server { _child: child, address: address.to_owned() })
    }

    /// The address without token and path: `http://127.0.0.1:PORT`.
    fn origin(&self) -> Result<&str> {
        let end = self.address.match_indices('/').nth(2).context("no path")?.0;
        Ok(&self.address[..end])
    }

    fn token(&self) -> Result<&str> {
        Ok(self.address.split_once("#token=").context("no token")?.1)
    }
}

/// The browser and a tab with the page of this server; None if there is no browser.
async fn browse(server: &Server) -> Result<Option<(Browser, Tab)>> {
    let Some(browser) = Browser::start().await? else {
        return Ok(None);
    };
    let tab = browser.open(&server.address).await?;
    tab.until("the page is current", "document.querySelector('.connection.live')").await?;
    Ok(Some((browser, tab)))
}

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
    let limit = Duration::from_secs(20);
    while !response.windows(4).any(|four| four == b"\r\n\r\n") {
        match timeout(limit, stream.read(&mut buffer)).await?? {
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
