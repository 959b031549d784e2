//! Commands that change a workload, its pods, a SidecarSet or a Cluster.

use gamekeeper_core::api::names::WorkloadKind;
use jiff::Timestamp;
use kube::api::ListParams;

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
use crate::kind::{Reference, each_name};
use crate::lifecycle;
use crate::move_pods::move_pods;
use crate::options::{ChangeOptions, ClusterOptions, SetCommand, Steer, WriteOptions};
use crate::page::sanitize;
use crate::print;
use crate::release::{Confirmed, release};
use crate::scene::Scene;
use crate::sidecar_set;
use crate::view::none_found;

/// Carries out a command for each workload that it names. If it fails for one, the others are still changed.
pub async fn steer(target: &ClusterOptions, mut command: Steer) -> Result<(), Error> {
    let Some(options) = command.change_options() else {
        return steer_one(target, command).await;
    };
    let named = match options.selects() {
        true => selected(target, options).await?,
        false => each_name(&options.words)?,
    };
    if let [_] = named[..] {
        return steer_one(target, command).await;
    }
    let mut errors = Vec::new();
    for name in named {
        let mut one = command.clone();
        if let Some(options) = one.change_options() {
            options.words = vec![name];
        }
        if let Err(error) = Box::pin(steer_one(target, one)).await {
            errors.push(error);
        }
    }
    match <[Error; 1]>::try_from(errors) {
        Ok([error]) => Err(error),
        Err(errors) if errors.is_empty() => Ok(()),
        Err(errors) => Err(Error::Several(errors)),
    }
}

/// The names of the workloads that a selector, or `--all`, selects.
async fn selected(target: &ClusterOptions, options: &ChangeOptions) -> Result<Vec<String>, Error> {
    let cluster = Cluster::connect(target).await?;
    let params = ListParams { label_selector: options.selector.clone(), ..ListParams::default() };
    let games = cluster.list_selected(&WorkloadKind::ALL, false, &params).await?;
    match games.is_empty() {
        true => Err(Error::NotFound(none_found(Some(&cluster.namespace)))),
        false => Ok(games.iter().map(Game::short_name).collect()),
    }
}

async fn steer_one(target: &ClusterOptions, command: Steer) -> Result<(), Error> {
    let cluster_change = match &command {
        Steer::Pause(options) => Some((options, lifecycle::Change::Pause)),
        Steer::Resume(options) => Some((options, lifecycle::Change::Resume)),
        Steer::Retry { options, point: None } => Some((options, lifecycle::Change::Retry)),
        _ => None,
    };
    if let Some((options, change)) = cluster_change
        && let Some(name) = lifecycle::name_in(&options.words)
    {
        return lifecycle::change(target, options, name, change).await;
    }
    let set_change = match &command {
        Steer::Pause(options) => Some((options, sidecar_set::Change::Pause)),
        Steer::Resume(options) => Some((options, sidecar_set::Change::Resume)),
        _ => None,
    };
    if let Some((options, change)) = set_change
        && let Some(name) = sidecar_set::name_in(&options.words)
    {
        return sidecar_set::change(target, options, name, change).await;
    }
    if let Steer::Undo { options, to_revision } = &command
        && let Some(name) = sidecar_set::name_in(&options.words)
    {
        return sidecar_set::undo(target, options, name, *to_revision).await;
    }
    match command {
        Steer::Pause(options) => change_game(target, &options, pause).await,
        Steer::Resume(options) => change_game(target, &options, resume).await,
        Steer::Promote { options, full: false } => change_game(target, &options, promote).await,
        Steer::Promote { options, full: true } => {
            change_game(target, &options, promote_fully).await
        }
        Steer::Move(options) => move_pods(target, &options).await,
        Steer::Release { words, yes, dry_run } => {
            release(target, &words, Confirmed(yes || dry_run), dry_run).await
        }
        Steer::Restart(options) => {
            let now = Timestamp::now();
            change_game(target, &options, |game| restart(game, now)).await
        }
        Steer::Retry { options, point } => {
            change_with_scene(target, &options, |scene| retry(scene, point)).await
        }
        Steer::Undo { options, to_revision } => {
            change_with_scene(target, &options, |scene| undo(scene, to_revision)).await
        }
        Steer::Set(SetCommand::Image { words, write }) => set_image(target, &words, &write).await,
    }
}

async fn change_game(
    target: &ClusterOptions,
    options: &ChangeOptions,
    decide: impl Fn(&Game) -> Result<Change, Error>,
) -> Result<(), Error> {
    let decide = |scene: &Scene| decide(&scene.game);
    change(target, &options.words, &options.write, Needs::Workload, decide).await
}

async fn change_with_scene(
    target: &ClusterOptions,
    options: &ChangeOptions,
    decide: impl Fn(&Scene) -> Result<Change, Error>,
) -> Result<(), Error> {
    change(target, &options.words, &options.write, Needs::Scene, decide).await
}

async fn change(
    target: &ClusterOptions,
    words: &[String],
    write: &WriteOptions,
    needs: Needs,
    decide: impl Fn(&Scene) -> Result<Change, Error>,
) -> Result<(), Error> {
    let reference = Reference::parse(words)?;
    let cluster = Cluster::connect(target).await?;
    let (game, change) = cluster.change(&reference, needs, write.dry_run, decide).await?;
    match write.output {
        Some(output) => put(&print::object(&game.object, output)?)?,
        None => {
            let dry_run = if write.dry_run { " (server dry run)" } else { "" };
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
    target: &ClusterOptions,
    words: &[String],
    write: &WriteOptions,
) -> Result<(), Error> {
    let (images, workload): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word.contains('='));
    let images: Vec<NewImage> =
        images.iter().map(|word| NewImage::parse(word)).collect::<Result<_, _>>()?;
    if images.is_empty() {
        return Err(Error::Usage("name at least one CONTAINER=IMAGE".to_owned()));
    }
    if let Some(name) = sidecar_set::name_in(&workload) {
        return sidecar_set::set_images(target, write, name, &images).await;
    }
    change(target, &workload, write, Needs::Workload, |scene| set_images(&scene.game, &images))
        .await
}
