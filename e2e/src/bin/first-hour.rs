//! Plays the first hour of the README with what a release consists of, on a control plane of its own.
//!
//! usage: first-hour CHART EXAMPLES    CHART is what helm installs (an address and options), EXAMPLES the folder that has
//! the examples; the folder GAMEKEEPER_PROGRAMS has the operator and the plugin. `release/check.sh` runs it.

use std::path::Path;

use anyhow::{Result, bail};
use e2e::cluster::control_plane::ControlPlane;
use e2e::documents::reader::{FIRST_HOUR, Reader};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [chart, examples] = &arguments[..] else {
        bail!("usage: first-hour CHART EXAMPLES");
    };
    let plane = ControlPlane::empty("release").await?;
    let examples = Path::new(examples);
    let outcome = play(&plane, chart, examples).await;
    plane.stop().await?;
    outcome
}

async fn play(plane: &ControlPlane, chart: &str, examples: &Path) -> Result<()> {
    let mut reader = Reader::of_release(plane, examples, chart, examples).await?;
    let outcome = reader.follow(&[FIRST_HOUR]).await;
    outcome.and(reader.stop_operator().await)
}
