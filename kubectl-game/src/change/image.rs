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
    let lists = ["/spec/template/spec/containers", "/spec/template/spec/initContainers"];
    replace_images(&mut after, lists, &game.short_name(), images)?;
    let outcome = outcome(&game.object, &after);
    Ok(Change::new(after, outcome))
}

/// What changing the images of an object did.
pub fn outcome(before: &Value, after: &Value) -> &'static str {
    match before == after {
        true => "image unchanged",
        false => "image updated",
    }
}

/// Sets images of the containers in these lists of an object, which is named in errors.
///
/// # Errors
/// If there is no container of one of these names.
pub fn replace_images(
    object: &mut Value,
    lists: [&str; 2],
    name: &str,
    images: &[NewImage],
) -> Result<(), Error> {
    for new in images {
        let mut found = false;
        for list in lists {
            let containers = object.pointer_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if new.container == "*" || container["name"] == new.container {
                    container["image"] = Value::from(new.image.as_str());
                    found = true;
                }
            }
        }
        if !found {
            return refuse_unknown(object, lists, name, &new.container);
        }
    }
    Ok(())
}

fn refuse_unknown<T>(
    object: &Value,
    lists: [&str; 2],
    name: &str,
    container: &str,
) -> Result<T, Error> {
    let containers = lists.into_iter().filter_map(|list| object.pointer(list)?.as_array());
    let names: Vec<&str> = containers.flatten().filter_map(|it| it["name"].as_str()).collect();
    let hint = match closest(container, names.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("its containers are {}", names.join(", ")),
    };
    refuse(format!("{name} has no container {container:?}: {hint}"))
}
