//! `set image`: new images for containers of the pod template.

use serde_json::Value;

use super::Change;
use crate::error::{Error, refuse};
use crate::game::Game;
use crate::suggest::closest;

/// A container (`*` for all) and its new image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImage {
    container: String,
    image: String,
}

impl NewImage {
    /// Parses `CONTAINER=IMAGE`.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word.split_once('=') {
            Some((container, image)) if !container.is_empty() && !image.is_empty() => {
                Ok(NewImage { container: container.to_owned(), image: image.to_owned() })
            }
            _ => Err(Error::Usage(format!("{word:?} is not CONTAINER=IMAGE"))),
        }
    }
}

/// Sets images of containers, in one patch and thus in one rollout.
pub fn set_images(game: &Game, images: &[NewImage]) -> Result<Change, Error> {
    let mut after = game.object.clone();
    for new in images {
        let mut found = false;
        for list in ["/spec/template/spec/containers", "/spec/template/spec/initContainers"] {
            let containers = after.pointer_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if new.container == "*" || container["name"] == new.container {
                    container["image"] = Value::from(new.image.as_str());
                    found = true;
                }
            }
        }
        if !found {
            return refuse_unknown(game, &new.container);
        }
    }
    let outcome = match after == game.object {
        true => "image unchanged",
        false => "image updated",
    };
    Ok(Change::new(after, outcome))
}

fn refuse_unknown<T>(game: &Game, container: &str) -> Result<T, Error> {
    let lists = ["/spec/containers", "/spec/initContainers"].into_iter();
    let containers = lists.filter_map(|list| game.template.pointer(list)?.as_array());
    let names: Vec<&str> = containers.flatten().filter_map(|it| it["name"].as_str()).collect();
    let hint = match closest(container, names.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("its containers are {}", names.join(", ")),
    };
    let name = game.short_name();
    refuse(format!("{name} has no container {container:?}: {hint}"))
}
