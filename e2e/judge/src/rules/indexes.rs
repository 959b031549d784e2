//! Invariant 7: no two pods of a GameDeployment have the same index.

use super::Found;
use super::start::name;
use crate::names::INDEX;
use crate::object::annotation;
use crate::replay::history::{Resource, Write};
use crate::replay::world::{Pod, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn indexes(world: &World, write: &Write) -> Option<Found> {
    if write.resource != Resource::Pod {
        return None;
    }
    let new = write.after.as_ref()?;
    let index = annotation(new, INDEX)?;
    let before = write.before.as_ref();
    if before.and_then(|before| annotation(before, INDEX)) == Some(index) {
        return None;
    }
    let (owner, _) = world.workload_of(new)?;
    // A Terminating pod keeps its index until it no longer exists.
    let is_twin = |pod: &&Pod| {
        annotation(&pod.object, INDEX) == Some(index) && name(&pod.object) != write.name
    };
    let twin = world.pods_of(owner).find(is_twin)?;
    let (pod, twin) = (&write.name, name(&twin.object));
    let why = format!("gives {pod} index {index}, which {twin} has");
    Some(("indexes", why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    #[test]
    fn a_pod_keeps_its_index_until_it_no_longer_exists() {
        let mut scenario = Scenario::with(json!({"replicas": 3}));
        scenario.create_with_index("x", "100");
        scenario.create_with_index("y", "101");
        assert!(!scenario.broken().contains(&"indexes"));
        scenario.delete_by("user", "x");
        scenario.wait(5);
        let mut while_terminating = scenario.clone();
        while_terminating.create_with_index("z", "100");
        assert!(while_terminating.broken().contains(&"indexes"));
        scenario.end("x");
        scenario.create_with_index("z", "100");
        assert!(!scenario.broken().contains(&"indexes"));
    }
}
