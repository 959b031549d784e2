//! Commands that change a workload.

use jiff::Timestamp;

use crate::change::Change;
use crate::change::image::{NewImage, set_images};
use crate::change::pause::{pause, promote, promote_fully, resume};
use crate::change::restart::restart;
use crate::change::retry::retry;
use crate::change::undo::undo;
use crate::cluster::{Cluster, Needs};
use crate::command::put;
use crate::error::Error;
use crate::game::Game;
use crate::kind::Reference;
use crate::lifecycle;
use crate::move_pods::move_pods;
use crate::options::{ChangeOptions, ClusterOptions, SetCommand, Steer, WriteOptions};
use crate::page::sanitize;
use crate::print;
use crate::release::release;
use crate::scene::Scene;
use crate::sidecar_set;

pub async fn steer(at: &ClusterOptions, command: Steer) -> Result<(), Error> {
    let of_cluster = match &command {
        Steer::Pause(on) => Some((on, lifecycle::Change::Pause)),
        Steer::Resume(on) => Some((on, lifecycle::Change::Resume)),
        Steer::Retry { on, point: None } => Some((on, lifecycle::Change::Retry)),
        _ => None,
    };
    if let Some((on, change)) = of_cluster
        && let Some(name) = lifecycle::named(&on.workload.words)
    {
        return lifecycle::change(at, on, name, change).await;
    }
    let of_set = match &command {
        Steer::Pause(on) => Some((on, sidecar_set::Change::Pause)),
        Steer::Resume(on) => Some((on, sidecar_set::Change::Resume)),
        _ => None,
    };
    if let Some((on, change)) = of_set
        && let Some(name) = sidecar_set::named(&on.workload.words)
    {
        return sidecar_set::change(at, on, name, change).await;
    }
    if let Steer::Undo { on, to_revision } = &command
        && let Some(name) = sidecar_set::named(&on.workload.words)
    {
        return sidecar_set::undo(at, on, name, *to_revision).await;
    }
    match command {
        Steer::Pause(on) => on_game(at, &on, pause).await,
        Steer::Resume(on) => on_game(at, &on, resume).await,
        Steer::Promote { on, full: false } => on_game(at, &on, promote).await,
        Steer::Promote { on, full: true } => on_game(at, &on, promote_fully).await,
        Steer::Move(options) => move_pods(at, &options).await,
        Steer::Release { words, dry_run } => release(at, &words, dry_run).await,
        Steer::Restart(on) => {
            let now = Timestamp::now();
            on_game(at, &on, |game| restart(game, now)).await
        }
        Steer::Retry { on, point } => on_scene(at, &on, |scene| retry(scene, point)).await,
        Steer::Undo { on, to_revision } => {
            on_scene(at, &on, |scene| undo(scene, to_revision)).await
        }
        Steer::Set(SetCommand::Image { words, write }) => set_image(at, &words, &write).await,
    }
}

async fn on_game(
    at: &ClusterOptions,
    on: &ChangeOptions,
    decide: impl Fn(&Game) -> Result<Change, Error>,
) -> Result<(), Error> {
    let decide = |scene: &Scene| decide(&scene.game);
    change(at, &on.workload.words, &on.write, Needs::Workload, decide).await
}

async fn on_scene(
    at: &ClusterOptions,
    on: &ChangeOptions,
    decide: impl Fn(&Scene) -> Result<Change, Error>,
) -> Result<(), Error> {
    change(at, &on.workload.words, &on.write, Needs::Scene, decide).await
}

async fn change(
    at: &ClusterOptions,
    words: &[String],
    write: &WriteOptions,
    needs: Needs,
    decide: impl Fn(&Scene) -> Result<Change, Error>,
) -> Result<(), Error> {
    let reference = Reference::parse(words)?;
    let cluster = Cluster::connect(at).await?;
    let (game, change) = cluster
        .change(&reference, needs, write.dry_run, decide)
        .await?;
    match write.output {
        Some(output) => put(&print::object(&game.object, output)?)?,
        None => {
            let dry_run = if write.dry_run {
                " (server dry run)"
            } else {
                ""
            };
            let outcome = sanitize(&change.outcome);
            put(&format!("{} {outcome}{dry_run}\n", game.full_name()))?;
        }
    }
    if let Some(note) = change.note {
        eprintln!("note: {}", sanitize(&note));
    }
    Ok(())
}

async fn set_image(
    at: &ClusterOptions,
    words: &[String],
    write: &WriteOptions,
) -> Result<(), Error> {
    let (images, workload): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word.contains('='));
    let images: Vec<NewImage> = images
        .iter()
        .map(|word| NewImage::parse(word))
        .collect::<Result<_, _>>()?;
    if images.is_empty() {
        return Err(Error::Usage("name at least one CONTAINER=IMAGE".to_owned()));
    }
    change(at, &workload, write, Needs::Workload, |scene| {
        set_images(&scene.game, &images)
    })
    .await
}
