//! `set image`: new images for containers of the pod template.

use serde_json::Value;

use super::Change;
use crate::error::Error;
use crate::game::Game;
use crate::suggest::closest;

/// A container (or `*`, all of them) and its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImage {
    container: String,
    image: String,
}

impl NewImage {
    /// Reads `CONTAINER=IMAGE`.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word.split_once('=') {
            Some((container, image)) if !container.is_empty() && !image.is_empty() => {
                Ok(NewImage {
                    container: container.to_owned(),
                    image: image.to_owned(),
                })
            }
            _ => Err(Error::Usage(format!("{word:?} is not CONTAINER=IMAGE"))),
        }
    }
}

/// Gives containers their new images, in one patch and so in one rollout.
pub fn set_images(game: &Game, images: &[NewImage]) -> Result<Change, Error> {
    let mut after = game.object.clone();
    for new in images {
        let mut found = false;
        for list in [
            "/spec/template/spec/containers",
            "/spec/template/spec/initContainers",
        ] {
            let containers = after.pointer_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if new.container == "*" || container["name"] == new.container {
                    container["image"] = Value::from(new.image.as_str());
                    found = true;
                }
            }
        }
        if !found {
            return Err(unknown(game, &new.container));
        }
    }
    let did = if after == game.object {
        "image unchanged"
    } else {
        "image updated"
    };
    Ok(Change::new(after, did))
}

fn unknown(game: &Game, container: &str) -> Error {
    let lists = ["/spec/containers", "/spec/initContainers"].into_iter();
    let containers = lists.filter_map(|list| game.template.pointer(list)?.as_array());
    let names: Vec<&str> = containers
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let hint = match closest(container, names.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("there are {}", names.join(", ")),
    };
    Error::Refused(format!(
        "{} has no container {container:?}: {hint}",
        game.short_name()
    ))
}
