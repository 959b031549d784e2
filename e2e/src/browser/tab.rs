//! A tab, used as a person uses it: it is looked at, clicked, and typed into.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::devtools::DevTools;
use crate::wait::LIMIT;

/// How often a condition is checked.
const INTERVAL: Duration = Duration::from_millis(50);

/// Which colors a visitor prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark text on a light page.
    Light,
    /// Light text on a dark page.
    Dark,
}

impl Theme {
    /// Both themes.
    pub const ALL: [Theme; 2] = [Theme::Light, Theme::Dark];

    /// The name in CSS.
    pub fn name(self) -> &'static str {
        match self {
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }
}

/// A tab of a browser.
pub struct Tab {
    devtools: DevTools,
    session: String,
}

impl Tab {
    pub(super) async fn open(devtools: DevTools, session: String, address: &str) -> Result<Self> {
        let tab = Tab { devtools, session };
        for domain in ["Page", "Runtime", "Log", "Accessibility"] {
            tab.call(&format!("{domain}.enable"), json!({})).await?;
        }
        tab.resize(1280, 900).await?;
        tab.visit(address).await?;
        Ok(tab)
    }

    /// Calls a method of the protocol.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.devtools.call(Some(&self.session), method, params).await
    }

    /// Loads an address.
    pub async fn visit(&self, address: &str) -> Result<()> {
        let loaded = self.call("Page.navigate", json!({"url": address})).await?;
        ensure!(loaded.get("errorText").is_none(), "{address}: {loaded}");
        Ok(())
    }

    /// Sets the size of the page in pixels.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await?;
        Ok(())
    }

    /// Sets the preferred colors. Transitions are off, so that nothing is looked at half-way.
    pub async fn prefer(&self, theme: Theme) -> Result<()> {
        let features = json!([
            {"name": "prefers-color-scheme", "value": theme.name()},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await?;
        Ok(())
    }

    /// The value of an expression, or of the promise that it returns.
    pub async fn evaluate(&self, expression: &str) -> Result<Value> {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let evaluated = self.call("Runtime.evaluate", params).await?;
        if let Some(details) = evaluated.get("exceptionDetails") {
            bail!("{expression}: {details}");
        }
        Ok(evaluated["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub async fn until(&self, description: &str, expression: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let last = self.evaluate(&format!("Boolean({expression})")).await;
            match last {
                Ok(Value::Bool(true)) => return Ok(()),
                _ if Instant::now() < deadline => sleep(INTERVAL).await,
                last => {
                    let text = self.evaluate("document.body?.innerText").await?;
                    bail!("never {description} ({last:?}): the page says {text}")
                }
            }
        }
    }

    /// Waits until an element that this selector finds shows this text.
    pub async fn until_shown(&self, selector: &str, words: &str) -> Result<()> {
        let description = format!("{selector} shows {words:?}");
        self.until(&description, &shows(selector, words)).await
    }

    /// The text that a person reads in the first element that this selector finds.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let selector = json!(selector);
        let text = self.evaluate(&format!("document.querySelector({selector})?.innerText")).await?;
        let text = text.as_str().with_context(|| format!("no {selector}"))?;
        Ok(text.to_owned())
    }

    /// How many elements this selector finds.
    pub async fn count(&self, selector: &str) -> Result<u64> {
        let selector = json!(selector);
        let count = self.evaluate(&format!("document.querySelectorAll({selector}).length")).await?;
        count.as_u64().context("no number")
    }

    /// Clicks the first visible element that this selector finds and that shows this text.
    pub async fn click(&self, selector: &str, words: &str) -> Result<()> {
        self.until_shown(selector, words).await?;
        let element = element(selector, words);
        let place = self
            .evaluate(&format!(
                "(() => {{ const it = {element}; it.scrollIntoView({{block: 'center'}}); \
                 const box = it.getBoundingClientRect(); \
                 return {{x: box.x + box.width / 2, y: box.y + box.height / 2}}; }})()"
            ))
            .await?;
        for type_ in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": type_, "x": place["x"], "y": place["y"], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Presses a key.
    pub async fn press(&self, key: &str) -> Result<()> {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            "Home" => (36, ""),
            "End" => (35, ""),
            _ => bail!("an unknown key: {key}"),
        };
        let event = |type_: &str| {
            json!({
                "type": type_, "key": key, "code": key, "windowsVirtualKeyCode": code,
                "text": if type_ == "keyDown" { text } else { "" },
            })
        };
        self.call("Input.dispatchKeyEvent", event("keyDown")).await?;
        self.call("Input.dispatchKeyEvent", event("keyUp")).await?;
        Ok(())
    }

    /// Presses Tab until the focus is on an element that shows this text or has it as its label.
    pub async fn tab_to(&self, words: &str) -> Result<()> {
        let is_there = format!(
            "(() => {{ const it = document.activeElement; const words = {}; \
             return (it?.getAttribute('aria-label') ?? '').includes(words) || (it?.innerText ?? '').includes(words); }})()",
            json!(words)
        );
        for _ in 0..200 {
            self.press("Tab").await?;
            let is_body = self.evaluate("document.activeElement === document.body").await?;
            if is_body == false && self.evaluate(&is_there).await? == true {
                return Ok(());
            }
        }
        bail!("Tab never reaches {words:?}")
    }

    /// What the browser's accessibility tree shows to a screen reader: role and name of each node.
    pub async fn accessible(&self) -> Result<Vec<(String, String)>> {
        let tree = self.call("Accessibility.getFullAXTree", json!({})).await?;
        let nodes = tree["nodes"].as_array().context("no nodes")?;
        let shown = nodes.iter().filter(|node| node["ignored"] != true);
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        Ok(shown.map(|node| (text(&node["role"]), text(&node["name"]))).collect())
    }

    /// Writes a picture of the whole page, or of its visible part.
    pub async fn screenshot(&self, path: &Path, whole: bool) -> Result<()> {
        let params = json!({"format": "png", "captureBeyondViewport": whole});
        let picture = self.call("Page.captureScreenshot", params).await?;
        let data = picture["data"].as_str().context("no picture")?;
        std::fs::write(path, BASE64_STANDARD.decode(data)?)?;
        Ok(())
    }

    /// Fails if the page has reported an error that contains none of these words.
    pub fn ensure_no_errors(&self, expected: &[&str]) -> Result<()> {
        let mut errors = self.devtools.errors(&self.session);
        errors.retain(|error| !expected.iter().any(|words| error.contains(words)));
        ensure!(errors.is_empty(), "errors of the page: {errors:#?}");
        Ok(())
    }
}

/// An expression: the first visible element with this text.
fn element(selector: &str, words: &str) -> String {
    let (selector, words) = (json!(selector), json!(words));
    format!(
        "[...document.querySelectorAll({selector})].find((it) => it.checkVisibility() && it.innerText.includes({words}))"
    )
}

fn shows(selector: &str, words: &str) -> String {
    format!("{} !== undefined", element(selector, words))
}
