//! A running `kubectl game view`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Browser, Tab};
use crate::case::Case;

/// A running `kubectl game view`.
pub struct PageServer {
    _child: Child,
    /// The address with the one-time token.
    pub address: String,
}

impl PageServer {
    /// Starts `kubectl game view --no-open` with more arguments, as the user of the case.
    pub async fn start(case: &Case, args: &[&str]) -> Result<Self> {
        let command = [&["game", "view", "--no-open"], args].concat();
        Self::run(case.kubectl_command(&command).await?).await
    }

    /// Starts it with a command that is `kubectl game view --no-open`.
    pub async fn run(mut command: Command) -> Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let line = timeout(Duration::from_secs(60), lines.next_line()).await??;
        let line = line.context("it printed nothing")?;
        let address = line.strip_prefix("open ").with_context(|| format!("it printed {line}"))?;
        Ok(Self { _child: child, address: address.to_owned() })
    }

    /// The address without token and path: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> Result<&str> {
        let end = self.address.match_indices('/').nth(2).context("no path")?.0;
        Ok(&self.address[..end])
    }

    /// The one-time token.
    pub fn token(&self) -> Result<&str> {
        Ok(self.address.split_once("#token=").context("no token")?.1)
    }

    /// A browser and a tab with the current page; None if there is no browser.
    pub async fn browse(&self) -> Result<Option<(Browser, Tab)>> {
        let Some(browser) = Browser::start().await? else {
            return Ok(None);
        };
        let tab = browser.open(&self.address).await?;
        tab.until("the page is current", "document.querySelector('.connection.live')").await?;
        Ok(Some((browser, tab)))
    }
}
