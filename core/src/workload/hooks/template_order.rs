//! In which order hooks get the containers of a pod.
//!
//! Sidecars of a mesh or another webhook may be anywhere in a pod, so the first container of the pod need not be the
//! game. The template has only what its author wrote.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::observed::{Container, Pod, RevisionName};
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// The order of the templates of a workload's revisions.
pub(super) struct TemplateOrder<'a> {
    workload: &'a Workload<'a>,
    world: &'a World,
    /// The names of the containers in each revision's template; read when the first pod needs them.
    by_revision: OnceCell<BTreeMap<RevisionName<'a>, Vec<String>>>,
}

impl<'a> TemplateOrder<'a> {
    /// The order for the pods of a workload.
    pub(super) fn new(workload: &'a Workload<'a>, world: &'a World) -> Self {
        Self { workload, world, by_revision: OnceCell::new() }
    }

    /// The pod's containers: those of its template in the template's order, then the others in the pod's. The current
    /// template counts for a pod whose revision is unknown.
    pub(super) fn of<'p>(&self, pod: &'p Pod) -> Vec<&'p Container> {
        let by_revision = self.by_revision.get_or_init(|| {
            let revisions = self.world.revisions.iter();
            revisions.map(|it| (it.name(), names(it.template.read()))).collect()
        });
        let current;
        let names = match by_revision.get(&pod.revision()) {
            Some(names) => names,
            None => {
                current = names(Template::deserialize(&self.workload.template).unwrap_or_default());
                &current
            }
        };
        let place = |container: &&Container| {
            names.iter().position(|name| *name == container.name).unwrap_or(names.len())
        };
        let mut containers: Vec<_> = pod.containers.iter().filter(|it| !it.init).collect();
        containers.sort_by_key(place);
        containers
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    containers: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn names(template: Template) -> Vec<String> {
    template.spec.containers.into_iter().map(|it| it.name).collect()
}
