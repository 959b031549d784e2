//! Pictures of the page, which stand in the documentation.

use anyhow::Result;
use e2e::browser::{Tab, Theme};
use e2e::checkout::repository;

/// Takes pictures in both themes, and of the light one on a narrow screen, if `WRITE_PICTURES=1` is set.
pub async fn take(tab: &Tab, name: &str) -> Result<()> {
    if std::env::var_os("WRITE_PICTURES").is_none() {
        return Ok(());
    }
    let folder = repository().join("docs/pictures");
    std::fs::create_dir_all(&folder)?;
    for theme in Theme::ALL {
        tab.prefer(theme).await?;
        tab.screenshot(&folder.join(format!("{name}-{}.png", theme.name())), true).await?;
    }
    tab.prefer(Theme::Light).await?;
    tab.resize(360, 740).await?;
    tab.screenshot(&folder.join(format!("{name}-narrow.png")), true).await?;
    tab.resize(1280, 900).await
}
