//! Commands that follow a rollout: `tree -w` and `status --watch`.

use std::io::{Write, stdout};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, interval, sleep_until, timeout};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::kind::Reference;
use crate::options::ClusterOptions;
use crate::page::{Page, inert};
use crate::scene::Scene;
use crate::style::{Style, Tone};
use crate::verdict::{End, Verdict, judge};
use crate::view::tree::tree;
use crate::watch::{Loss, SceneWatch, Sight};

/// How often the ages on a terminal are drawn again.
const TICK: Duration = Duration::from_secs(1);
/// How long the first frame waits until the operator has looked at a change that was just made.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Takes a terminal's cursor to the top and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[2J";

/// Draws the tree again whenever something changes, until the workload is gone.
pub async fn follow_tree(
    cluster: &Cluster,
    reference: &Reference,
    most: usize,
    style: Style,
) -> Result<(), Error> {
    let game = cluster.find(reference).await?;
    let name = game.full_name();
    let mut watch = SceneWatch::new(cluster, &game);
    let mut shown = Frames {
        most,
        style,
        last: None,
        loss: None,
    };
    let mut ticks = interval(TICK);
    let patience = Instant::now() + FIRST_LOOK;
    let mut unseen: Option<Scene> = None;
    loop {
        tokio::select! {
            sight = watch.next() => match sight? {
                Sight::Scene(scene) if is_too_early(&scene, shown.last.is_some(), patience) => unseen = Some(*scene),
                Sight::Scene(scene) => {
                    unseen = None;
                    shown.show(*scene)?;
                }
                Sight::Lost(loss) => shown.lose(loss)?,
                Sight::Gone => {
                    writeln!(stdout(), "{name} was deleted")?;
                    return Ok(());
                }
            },
            () = sleep_until(patience), if unseen.is_some() => {
                unseen.take().map_or(Ok(()), |scene| shown.show(scene))?;
            }
            _ = ticks.tick(), if style.symbols => shown.draw()?,
        }
    }
}

/// Whether a first frame would say no more than that the operator is about to look.
fn is_too_early(scene: &Scene, is_shown: bool, patience: Instant) -> bool {
    let is_seen = scene.game.is_observed() || scene.game.deleting;
    !is_seen && !is_shown && Instant::now() < patience
}

struct Frames {
    /// Most pods in a frame.
    most: usize,
    style: Style,
    last: Option<Scene>,
    loss: Option<Loss>,
}

impl Frames {
    /// Shows a scene; in a pipe only if it differs in more than ages from the last one.
    fn show(&mut self, scene: Scene) -> Result<(), Error> {
        let most = self.most;
        let timeless = |scene: &Scene| tree(scene, most, Style::PLAIN, Timestamp::UNIX_EPOCH);
        let is_news = self
            .last
            .as_ref()
            .is_none_or(|last| timeless(last) != timeless(&scene));
        let is_drawn = self.is_drawn();
        self.last = Some(scene);
        let was_lost = self.loss.take().is_some();
        if was_lost && !is_drawn {
            eprintln!("{BACK}");
        }
        if is_news || was_lost && is_drawn {
            self.draw()?;
        }
        Ok(())
    }

    /// Says that the connection is lost: in the frame, if there is one that is drawn over.
    fn lose(&mut self, loss: Loss) -> Result<(), Error> {
        if !self.is_drawn() {
            eprintln!("{}", lost(&loss));
        }
        self.loss = Some(loss);
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
            // What was seen last does not grow older while nobody knows how it is.
            let seen = self.loss.as_ref().map_or(now, |loss| loss.since);
            let mut page = Page::new(self.style);
            if let Some(loss) = &self.loss {
                page.line(Tone::Bad, &lost(loss));
            }
            let frame = tree(scene, self.most, self.style, seen);
            write!(out, "{REDRAW}{}{frame}", page.text())?;
        } else {
            let frame = tree(scene, self.most, self.style, now);
            let time = now.round(jiff::Unit::Second).unwrap_or(now);
            writeln!(out, "--- {time}\n{frame}")?;
        }
        Ok(out.flush()?)
    }
}

/// Says that a lost connection is there again.
const BACK: &str = "connection restored";

fn lost(loss: &Loss) -> String {
    let since = loss.since.round(jiff::Unit::Second).unwrap_or(loss.since);
    format!("connection lost since {since}: {}", inert(&loss.why))
}

/// Waits until a rollout is complete or stopped, telling what it is at. The limit counts from the first
/// word to the cluster.
pub async fn follow_status(
    at: &ClusterOptions,
    reference: &Reference,
    limit: Option<Duration>,
    mut tell: impl FnMut(&Scene, &Verdict) -> Result<(), Error>,
) -> Result<(Scene, Verdict), Error> {
    let mut last = None;
    let end = until_end(at, reference, &mut last, &mut tell);
    let scene = match limit {
        None => end.await?,
        Some(limit) => match timeout(limit, end).await {
            Ok(ended) => ended?,
            Err(_) => last.ok_or(Error::no_answer(limit))?,
        },
    };
    let verdict = judge(&scene, Timestamp::now());
    Ok((scene, verdict))
}

/// The scene at the end; until then `last` is the one that was seen last.
async fn until_end(
    at: &ClusterOptions,
    reference: &Reference,
    last: &mut Option<Scene>,
    tell: &mut impl FnMut(&Scene, &Verdict) -> Result<(), Error>,
) -> Result<Scene, Error> {
    let cluster = Cluster::connect(at).await?;
    let game = cluster.find(reference).await?;
    let mut watch = SceneWatch::new(&cluster, &game);
    // It says most by itself, should the rest come too late.
    *last = Some(Scene::new(game.clone(), Vec::new(), Vec::new(), Vec::new()));
    let mut is_lost = false;
    loop {
        let scene = match watch.next().await? {
            Sight::Scene(scene) => *scene,
            Sight::Lost(loss) => {
                eprintln!("{}", lost(&loss));
                is_lost = true;
                continue;
            }
            Sight::Gone => {
                return Err(Error::NotFound(format!("{} was deleted", game.full_name())));
            }
        };
        if std::mem::take(&mut is_lost) {
            eprintln!("{BACK}");
        }
        let verdict = judge(&scene, Timestamp::now());
        if verdict.end != End::UnderWay {
            return Ok(scene);
        }
        tell(&scene, &verdict)?;
        *last = Some(scene);
    }
}
