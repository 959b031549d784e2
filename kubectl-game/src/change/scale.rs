//! The number of pods, as `kubectl scale` sets it.

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::game::Game;

/// Sets the number of pods.
pub fn scale(game: &Game, replicas: i64) -> Result<Change, Error> {
    let name = game.short_name();
    if replicas < 0 {
        return refuse(format!("{name} cannot have {replicas} pods"));
    }
    if replicas == game.replicas {
        return refuse(format!("{name} already has {replicas} desired pods"));
    }
    let mut after = game.object.clone();
    set(&mut after, &["spec", "replicas"], replicas);
    Ok(Change::new(after, format!("scaled from {} to {replicas}", game.replicas)))
}
