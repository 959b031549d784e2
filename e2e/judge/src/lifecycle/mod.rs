//! Judges the lifecycle hooks of Clusters: which scripts ran, where, and in which order.
//!
//! Clusters and nodes are cluster-scoped, and scripts have a namespace of their own. So this is a separate judge,
//! which shares the evidence and the replay with the judge of workloads. The rules, by their names in a [`Violation`]:
//!
//! | rule | violations that it detects |
//! |---|---|
//! | phase | a script that must not run: it belongs to another phase, no hook is configured for it, or the Cluster skips it or is paused |
//! | order | a script that starts before the preceding steps have passed: on its node or, for a script of the cluster, on all nodes |
//! | alone | a second script on a node while another is running |
//! | repeat | a script that starts although the record says that it has passed |
//! | parallelism, nodes at once | scripts or upgrades on more nodes at a time than the Cluster allows |
//! | master | a script of the cluster on a node other than the first master |
//! | lost | a script that starts on a lost node |
//! | drain, cordon | an upgrade of a node that is not cordoned; a node that is cordoned unnecessarily, or uncordoned although another client cordoned it |
//! | record | a step recorded as passed although none of its pods has succeeded |
//! | taint, finalizer | a node admitted before its install is complete; a Cluster's finalizer removed before its delete hooks have passed or its records are removed |
//! | settled | a status write that changes nothing |

mod nodes;
mod object;
#[cfg(test)]
mod scenario;
mod scripts;
mod step;
#[cfg(test)]
mod tests;
mod world;

use self::world::World;
use crate::evidence::Event;
use crate::replay::history::history;
use crate::verdict::{Violation, describe};

/// Checks the writes to cluster-scoped objects and those in the scripts' namespace. `is_operator` tells whether a user
/// is an operator.
pub fn lifecycle_violations(
    events: &[Event],
    is_operator: impl Fn(&str) -> bool,
) -> Vec<Violation> {
    let mut world = World::default();
    let mut found = Vec::new();
    for write in history(events) {
        if is_operator(&write.user) {
            let mut wrong = scripts::scripts(&world, &write);
            wrong.extend(scripts::records(&world, &write));
            wrong.extend(nodes::cordons(&world, &write, &is_operator));
            wrong.extend(nodes::taint(&write));
            wrong.extend(nodes::finalizer(&world, &write));
            found.extend(wrong.into_iter().map(|(rule, why)| Violation {
                rule,
                at: write.received,
                write: describe(&write),
                why,
            }));
        }
        world.apply(&write);
    }
    found
}
