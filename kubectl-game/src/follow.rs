//! Commands that follow a rollout: `tree -w` and `status --watch`.

use std::io::{Write, stdout};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, interval, sleep_until};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::kind::Reference;
use crate::scene::Scene;
use crate::style::Style;
use crate::verdict::{End, Verdict, judge};
use crate::view::tree::tree;
use crate::watch::SceneWatch;

/// How often the ages on a terminal are drawn anew.
const TICK: Duration = Duration::from_secs(1);
/// Takes a terminal's cursor to the top and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[2J";

/// Draws the tree anew whenever something changes, until the workload is gone.
pub async fn follow_tree(
    cluster: &Cluster,
    reference: &Reference,
    style: Style,
) -> Result<(), Error> {
    let game = cluster.find(reference).await?;
    let name = game.full_name();
    let mut watch = SceneWatch::new(cluster, &game);
    let mut shown = Frames { style, last: None };
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            scene = watch.next() => match scene? {
                Some(scene) => shown.show(scene)?,
                None => {
                    writeln!(stdout(), "{name} is gone")?;
                    return Ok(());
                }
            },
            _ = ticks.tick(), if style.symbols => shown.draw()?,
        }
    }
}

struct Frames {
    style: Style,
    last: Option<Scene>,
}

impl Frames {
    /// Shows a scene; in a pipe only if it differs in more than ages from the last one.
    fn show(&mut self, scene: Scene) -> Result<(), Error> {
        let timeless = |scene: &Scene| tree(scene, Style::PLAIN, Timestamp::UNIX_EPOCH);
        let is_news = self
            .last
            .as_ref()
            .is_none_or(|last| timeless(last) != timeless(&scene));
        self.last = Some(scene);
        if is_news { self.draw() } else { Ok(()) }
    }

    fn draw(&self) -> Result<(), Error> {
        let Some(scene) = &self.last else {
            return Ok(());
        };
        let now = Timestamp::now();
        let frame = tree(scene, self.style, now);
        let mut out = stdout().lock();
        if self.style.symbols {
            write!(out, "{REDRAW}{frame}")?;
        } else {
            let time = now.round(jiff::Unit::Second).unwrap_or(now);
            writeln!(out, "--- {time}\n{frame}")?;
        }
        Ok(out.flush()?)
    }
}

/// Waits until a rollout is complete or stopped, telling what it is at.
pub async fn follow_status(
    cluster: &Cluster,
    reference: &Reference,
    limit: SignedDuration,
    mut tell: impl FnMut(&Scene, &Verdict) -> Result<(), Error>,
) -> Result<(Scene, Verdict), Error> {
    let game = cluster.find(reference).await?;
    let name = game.full_name();
    let mut watch = SceneWatch::new(cluster, &game);
    let limit = Duration::try_from(limit)
        .ok()
        .filter(|limit| !limit.is_zero());
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut last = cluster.scene(reference).await?;
    loop {
        let over = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let verdict = judge(&last, Timestamp::now());
        if verdict.end != End::UnderWay {
            return Ok((last, verdict));
        }
        tell(&last, &verdict)?;
        tokio::select! {
            scene = watch.next() => match scene? {
                Some(scene) => last = scene,
                None => return Err(Error::NotFound(format!("{name} is gone"))),
            },
            () = over => return Ok((last, verdict)),
        }
    }
}
