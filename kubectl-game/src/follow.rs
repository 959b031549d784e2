//! Commands that follow a rollout: `tree -w` and `status --watch`.

use std::io::{Write, stdout};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, interval, sleep_until, timeout};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::kind::Reference;
use crate::options::ClusterOptions;
use crate::page::{Page, sanitize};
use crate::scene::Scene;
use crate::style::{Style, Tone};
use crate::verdict::{End, Verdict, judge};
use crate::view::tree::tree;
use crate::watch::{Outage, SceneWatch, Update};

/// How often a terminal is redrawn, which keeps ages current.
pub const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// How long the first frame waits for the operator to observe a change that was just made.
const OBSERVATION_WAIT: Duration = Duration::from_secs(1);
/// Moves a terminal's cursor to the top and clears what is below.
pub const REDRAW: &str = "\x1b[H\x1b[2J";
const RESTORED: &str = "connection restored";

/// Redraws the tree whenever something changes, until the workload is deleted.
pub async fn follow_tree(
    cluster: &Cluster,
    reference: &Reference,
    max_pods: usize,
    style: Style,
) -> Result<(), Error> {
    let game = cluster.find(reference).await?;
    let name = game.full_name();
    let mut watch = SceneWatch::new(cluster, &game);
    let mut frames = Frames { max_pods, style, last: None, outage: None };
    let mut ticks = interval(REDRAW_INTERVAL);
    let deadline = Instant::now() + OBSERVATION_WAIT;
    let mut unobserved: Option<Scene> = None;
    loop {
        tokio::select! {
            update = watch.next() => match update? {
                Update::State(scene) if is_too_early(&scene, frames.last.is_some(), deadline) => {
                    unobserved = Some(*scene);
                }
                Update::State(scene) => {
                    unobserved = None;
                    frames.show(*scene)?;
                }
                Update::Disconnected(outage) => frames.show_outage(outage)?,
                Update::Deleted => {
                    writeln!(stdout(), "{name} was deleted")?;
                    return Ok(());
                }
            },
            () = sleep_until(deadline), if unobserved.is_some() => {
                unobserved.take().map_or(Ok(()), |scene| frames.show(scene))?;
            }
            _ = ticks.tick(), if style.symbols => frames.draw()?,
        }
    }
}

/// Whether the first frame should wait, because the operator has not observed the spec yet.
fn is_too_early(scene: &Scene, is_shown: bool, deadline: Instant) -> bool {
    let is_observed = scene.game.is_observed() || scene.game.deleting;
    !is_observed && !is_shown && Instant::now() < deadline
}

struct Frames {
    max_pods: usize,
    style: Style,
    last: Option<Scene>,
    outage: Option<Outage>,
}

impl Frames {
    /// Stores a scene, and draws it if something other than ages has changed. Ages on a terminal are redrawn regularly.
    fn show(&mut self, scene: Scene) -> Result<(), Error> {
        let max_pods = self.max_pods;
        let timeless = |scene: &Scene| tree(scene, max_pods, Style::PLAIN, Timestamp::UNIX_EPOCH);
        let is_new = self.last.as_ref().is_none_or(|last| timeless(last) != timeless(&scene));
        let is_drawn = self.is_drawn();
        self.last = Some(scene);
        let was_disconnected = self.outage.take().is_some();
        if was_disconnected && !is_drawn {
            eprintln!("{RESTORED}");
        }
        if is_new || was_disconnected && is_drawn {
            self.draw()?;
        }
        Ok(())
    }

    /// Shows that the connection is lost: in the frame if there is one, on stderr otherwise.
    fn show_outage(&mut self, outage: Outage) -> Result<(), Error> {
        if !self.is_drawn() {
            eprintln!("{}", outage_message(&outage));
        }
        self.outage = Some(outage);
        if self.is_drawn() { self.draw() } else { Ok(()) }
    }

    fn is_drawn(&self) -> bool {
        self.style.symbols && self.last.is_some()
    }

    fn draw(&self) -> Result<(), Error> {
        let Some(scene) = &self.last else {
            return Ok(());
        };
        let now = Timestamp::now();
        let mut out = stdout().lock();
        if self.style.symbols {
            // Ages do not advance while the connection is lost.
            let last_seen = self.outage.as_ref().map_or(now, |outage| outage.since);
            let mut page = Page::new(self.style);
            if let Some(outage) = &self.outage {
                page.line(Tone::Bad, &outage_message(outage));
            }
            let frame = tree(scene, self.max_pods, self.style, last_seen);
            write!(out, "{REDRAW}{}{frame}", page.text())?;
        } else {
            let frame = tree(scene, self.max_pods, self.style, now);
            let time = now.round(jiff::Unit::Second).unwrap_or(now);
            writeln!(out, "--- {time}\n{frame}")?;
        }
        Ok(out.flush()?)
    }
}

fn outage_message(outage: &Outage) -> String {
    let since = outage.since;
    let since = since.round(jiff::Unit::Second).unwrap_or(since);
    format!("no connection since {since}: {}", sanitize(&outage.why))
}

/// Waits until a rollout is complete or stopped, and passes each state before that to `report`. The limit
/// includes the time to connect.
pub async fn follow_status(
    target: &ClusterOptions,
    reference: &Reference,
    limit: Option<Duration>,
    mut report: impl FnMut(&Scene, &Verdict) -> Result<(), Error>,
) -> Result<(Scene, Verdict), Error> {
    let mut last = None;
    let end = until_end(target, reference, &mut last, &mut report);
    let scene = match limit {
        None => end.await?,
        Some(limit) => match timeout(limit, end).await {
            Ok(ended) => ended?,
            Err(_) => last.ok_or(Error::no_response(limit))?,
        },
    };
    let verdict = judge(&scene, Timestamp::now());
    Ok((scene, verdict))
}

/// Waits for the end of the rollout, and returns its scene. `last` holds the latest scene, in case of a timeout.
async fn until_end(
    target: &ClusterOptions,
    reference: &Reference,
    last: &mut Option<Scene>,
    report: &mut impl FnMut(&Scene, &Verdict) -> Result<(), Error>,
) -> Result<Scene, Error> {
    let cluster = Cluster::connect(target).await?;
    let game = cluster.find(reference).await?;
    let mut watch = SceneWatch::new(&cluster, &game);
    // The workload alone suffices for most verdicts if its pods and runs arrive too late.
    *last = Some(Scene::of_game(game.clone()));
    let mut is_disconnected = false;
    loop {
        let scene = match watch.next().await? {
            Update::State(scene) => *scene,
            Update::Disconnected(outage) => {
                eprintln!("{}", outage_message(&outage));
                is_disconnected = true;
                continue;
            }
            Update::Deleted => {
                return Err(Error::NotFound(format!("{} was deleted", game.full_name())));
            }
        };
        if std::mem::take(&mut is_disconnected) {
            eprintln!("{RESTORED}");
        }
        let verdict = judge(&scene, Timestamp::now());
        if verdict.end != End::InProgress {
            return Ok(scene);
        }
        report(&scene, &verdict)?;
        *last = Some(scene);
    }
}
