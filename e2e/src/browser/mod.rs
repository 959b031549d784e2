//! A real headless Chromium, driven over its DevTools protocol.

mod devtools;
mod page_server;
mod tab;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use self::devtools::DevTools;
pub use self::page_server::PageServer;
pub use self::tab::{Tab, Theme};
use crate::checkout::repository;

/// How long the browser may take to start.
const START: Duration = Duration::from_secs(60);

/// A running browser. Its profile is removed when it is dropped.
pub struct Browser {
    devtools: DevTools,
    _child: Child,
    profile: PathBuf,
}

impl Browser {
    /// Starts Chromium; None, after one line that says so, if it is not installed and cannot be.
    pub async fn start() -> Result<Option<Self>> {
        if !is_installed().await {
            return Ok(None);
        }
        let profile = std::env::temp_dir().join(format!("gamekeeper-browser-{}", unique()));
        std::fs::create_dir_all(&profile)?;
        let mut command = Command::new("chromium");
        command.args([
            "--headless=new",
            "--remote-debugging-port=0",
            "--no-first-run",
            "--no-default-browser-check",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--force-device-scale-factor=1",
            "--hide-scrollbars",
            // Tests run as root in containers, where Chromium's own sandbox does not start.
            "--no-sandbox",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().context("chromium did not start")?;
        let stderr = child.stderr.take().context("no pipe")?;
        let mut lines = BufReader::new(stderr).lines();
        let address = timeout(START, async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix("DevTools listening on ") {
                    return Ok(address.to_owned());
                }
            }
            bail!("chromium ended before it listened")
        });
        let address = address.await.context("chromium does not listen")??;
        // What it prints later is read, so that the pipe never fills, and is not needed.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let devtools = DevTools::connect(&address).await?;
        Ok(Some(Browser { devtools, _child: child, profile }))
    }

    /// Opens an address in a tab with cookies of its own.
    pub async fn open(&self, address: &str) -> Result<Tab> {
        let context = self.devtools.call(None, "Target.createBrowserContext", json!({})).await?;
        let target = json!({"url": "about:blank", "browserContextId": context["browserContextId"]});
        let target = self.devtools.call(None, "Target.createTarget", target).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.devtools.call(None, "Target.attachToTarget", attach).await?;
        let session = session["sessionId"].as_str().context("no session")?.to_owned();
        Tab::open(self.devtools.clone(), session, address).await
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Whether Chromium is installed. It is installed if that is possible, once for all tests.
async fn is_installed() -> bool {
    static INSTALLED: OnceCell<bool> = OnceCell::const_new();
    let install = async || {
        let mut command = Command::new(repository().join("e2e/require.sh"));
        let output = command.arg("chromium").stdin(Stdio::null()).output().await;
        let is_there = output.is_ok_and(|output| output.status.success());
        if !is_there {
            eprintln!(
                "the browser tests are skipped: chromium is not installed, and cannot be installed here"
            );
        }
        is_there
    };
    *INSTALLED.get_or_init(install).await
}

/// A number that no other browser of this machine uses.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
