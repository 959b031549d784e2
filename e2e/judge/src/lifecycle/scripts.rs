//! When a script may start, and when a step may be recorded as passed.

use super::object::{Cluster, Record, is_cordoned, is_tainted};
use super::step::{Phase, Step, Work};
use super::world::{Run, World};
use crate::names;
use crate::object::uid;
use crate::replay::history::Write;
use crate::rules::{Found, wrong_under_all};

/// Checks the start of a script.
pub(crate) fn scripts(world: &World, write: &Write) -> Vec<Found> {
    let Some(run) = world.created(write) else {
        return Vec::new();
    };
    let rules: [(&'static str, Rule); 7] = [
        ("phase", phase),
        ("order", order),
        ("repeat", repeat),
        ("master", master),
        ("parallelism", parallelism),
        ("nodes at once", nodes_at_once),
        ("drain", drain),
    ];
    let versions = world.cluster(&run.task.cluster_uid, write);
    let rules = rules.into_iter().filter_map(|(name, rule)| {
        let why = wrong_under_all(&versions, |it| rule(&Start { world, write, run: &run }, it))?;
        Some((name, why))
    });
    let alone = alone(world, &run);
    let lost = lost(world, write, &run);
    rules.chain(alone).chain(lost).collect()
}

/// The start of a script.
struct Start<'a> {
    world: &'a World,
    write: &'a Write,
    run: &'a Run,
}

/// Why a start is wrong under a version of the Cluster.
type Rule = fn(&Start, &Cluster) -> Option<String>;

impl Start<'_> {
    fn step(&self) -> &'static Step {
        self.run.task.step
    }

    /// Whether a step has passed on the run's node.
    fn has_passed_here(&self, step: &Step, cluster: &Cluster) -> bool {
        let node = self.world.node(&self.run.task.node_uid, self.write);
        // A node that was deleted in the meantime has no versions.
        node.is_empty() || node.iter().any(|it| cluster.has_passed_on(step, it))
    }

    /// Whether a step has passed on every node that the operator is certain to have observed.
    fn has_passed_everywhere(&self, step: &Step, cluster: &Cluster) -> bool {
        let nodes = self.world.nodes.values();
        let mut nodes = nodes.filter(|it| it.is_known_at(self.write.received));
        nodes.all(|node| {
            let mut seen = node.seen_at(self.write.received);
            seen.any(|it| !cluster.selects(it) || cluster.has_passed_on(step, it))
        })
    }
}

/// A script runs only in its own phase, if it is configured and not skipped, while the Cluster is not paused.
fn phase(start: &Start, cluster: &Cluster) -> Option<String> {
    let step = start.step();
    let is_due = match step.phase {
        Phase::Install => !cluster.is_being_deleted(),
        Phase::Upgrade => !cluster.is_being_deleted() && cluster.is_upgrading(),
        Phase::Delete => cluster.is_being_deleted(),
    };
    if !is_due {
        Some(format!("{} starts outside its phase", step.name))
    } else if !cluster.includes(step) {
        Some(format!("{} has no script, or is skipped", step.name))
    } else if cluster.is_paused() {
        Some(format!("{} starts while paused", step.name))
    } else {
        None
    }
}

/// A script of a node starts after the preceding steps have passed on that node. A script of the cluster starts after
/// they have passed on every node.
fn order(start: &Start, cluster: &Cluster) -> Option<String> {
    let step = start.step();
    let mut preceding = step.preceding().filter(|it| cluster.includes(it));
    let unfinished = preceding.find(|earlier| match (earlier.is_per_node, step.is_per_node) {
        (false, _) => !cluster.has_passed(earlier),
        (true, true) => !start.has_passed_here(earlier, cluster),
        (true, false) => !start.has_passed_everywhere(earlier, cluster),
    })?;
    Some(format!("{} starts before {} has passed", step.name, unfinished.name))
}

/// A script does not run where it has already passed.
fn repeat(start: &Start, cluster: &Cluster) -> Option<String> {
    let step = start.step();
    let is_recorded = match step.is_per_node {
        false => cluster.has_passed(step),
        true => {
            let seen = start.world.node(&start.run.task.node_uid, start.write);
            !seen.is_empty() && seen.iter().all(|it| cluster.has_passed_on(step, it))
        }
    };
    is_recorded.then(|| format!("{} has already passed on {}", step.name, start.run.node))
}

/// A script of the cluster runs on the first master, which the status names.
fn master(start: &Start, cluster: &Cluster) -> Option<String> {
    let first_master = crate::object::text(cluster.0, "/status/firstMaster");
    let is_elsewhere = !start.step().is_per_node && start.run.node != first_master;
    is_elsewhere.then(|| {
        format!("the script runs on {}, not on the first master {first_master}", start.run.node)
    })
}

/// Scripts run on no more nodes than `parallelism`.
fn parallelism(start: &Start, cluster: &Cluster) -> Option<String> {
    let live = start.world.live().map(|it| it.task.node_uid.as_str());
    let nodes: std::collections::BTreeSet<&str> =
        live.chain([start.run.task.node_uid.as_str()]).collect();
    let allowed = cluster.parallelism();
    (nodes.len() > allowed)
        .then(|| format!("scripts run on {} nodes instead of {allowed}", nodes.len()))
}

/// No more nodes than `parallelism` are between their PreUpgrade and the end of their upgrade.
fn nodes_at_once(start: &Start, cluster: &Cluster) -> Option<String> {
    if start.step().work != Work::Hook("PreUpgrade") {
        return None;
    }
    let number = start.run.task.upgrade;
    let has_begun = |uid: &str| {
        let mut runs = start.world.runs.values().map(|it| &it.task);
        runs.any(|it| it.step == start.step() && it.upgrade == number && it.node_uid == uid)
    };
    let nodes = start.world.nodes.values().filter_map(|it| it.newest());
    let is_in_upgrade = |node: &&serde_json::Value| {
        let steps =
            Step::of_phase(Phase::Upgrade).filter(|it| it.is_per_node && cluster.includes(it));
        let mut steps = steps.filter(|it| !cluster.has_passed_on(it, node));
        cluster.selects(node) && has_begun(uid(node)) && steps.next().is_some()
    };
    let mut others = nodes.filter(is_in_upgrade).filter(|it| uid(it) != start.run.task.node_uid);
    let allowed = cluster.parallelism();
    let is_new = !has_begun(&start.run.task.node_uid);
    let too_many = is_new && others.by_ref().nth(allowed.saturating_sub(1)).is_some();
    too_many.then(|| format!("another node begins its upgrade while {allowed} are being upgraded"))
}

/// A node that is to be drained is cordoned before its PreUpgrade script starts.
fn drain(start: &Start, cluster: &Cluster) -> Option<String> {
    let needs_drain = start.step().work == Work::Hook("PreUpgrade") && cluster.drains();
    let seen = start.world.node(&start.run.task.node_uid, start.write);
    let is_schedulable = !seen.is_empty() && !seen.iter().any(|it| is_cordoned(it));
    (needs_drain && is_schedulable).then(|| format!("{} is not cordoned", start.run.node))
}

/// No script starts on a node while another one is running there.
fn alone(world: &World, run: &Run) -> Option<Found> {
    let mut live = world.live();
    let other = live.find(|it| it.task.node_uid == run.task.node_uid && it.name != run.name)?;
    Some(("alone", format!("{} is still running on {}", other.name, run.node)))
}

/// No script starts on a lost node.
fn lost(world: &World, write: &Write, run: &Run) -> Option<Found> {
    let seen = world.node(&run.task.node_uid, write);
    let is_lost = !seen.is_empty() && seen.iter().all(|it| is_tainted(it, names::UNREACHABLE));
    is_lost.then(|| ("lost", format!("{} is lost", run.node)))
}

/// Checks a record of what has passed: each step in it must have succeeded.
pub(crate) fn records(world: &World, write: &Write) -> Vec<Found> {
    let Some(after) = &write.after else {
        return Vec::new();
    };
    match write.plural.as_str() {
        "clusters" if write.subresource == "status" => {
            cluster_record(world, write, &Cluster(after)).into_iter().collect()
        }
        "nodes" => node_record(world, write, after).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn cluster_record(world: &World, write: &Write, after: &Cluster) -> Option<Found> {
    if !write.changed() {
        return Some(("settled", "a status write that changes nothing".to_owned()));
    }
    let before = write.before.as_ref().map(|it| Cluster(it));
    let old: Vec<&str> = before.iter().flat_map(Cluster::passed).collect();
    let mut new = after.passed().filter(|it| !old.contains(it)).filter_map(Step::named);
    let unproven = new.find(|step| {
        let upgrade = after.upgrade().filter(|_| step.phase == Phase::Upgrade);
        let mut passed = world.passed.iter();
        !passed
            .any(|it| it.cluster_uid == uid(after.0) && it.step == *step && it.upgrade == upgrade)
    })?;
    Some(("record", format!("{} is recorded without a success", unproven.name)))
}

fn node_record(world: &World, write: &Write, after: &serde_json::Value) -> Option<Found> {
    let record = Record::on(after)?;
    let old = write.before.as_ref().map(|it| Record::of_cluster(it, &record.cluster_uid));
    let old = old.unwrap_or_default();
    if record.node_uid != uid(after) {
        return Some(("record", format!("has the record of node {}", record.node_uid)));
    }
    let is_old = |step: &Step| match step.phase {
        Phase::Upgrade => {
            old.upgrade == record.upgrade && old.upgraded.iter().any(|it| it == step.name)
        }
        _ => old.passed.iter().any(|it| it == step.name),
    };
    let recorded = record.passed.iter().chain(&record.upgraded);
    let mut new = recorded.filter_map(|it| Step::named(it)).filter(|it| !is_old(it));
    let unproven = new.find(|step| {
        let upgrade = record.upgrade.filter(|_| step.phase == Phase::Upgrade);
        let mut passed = world.passed.iter();
        !passed.any(|it| {
            it.cluster_uid == record.cluster_uid
                && it.node_uid == record.node_uid
                && it.step == *step
                && it.upgrade == upgrade
        })
    });
    if let Some(step) = unproven {
        return Some(("record", format!("{} is recorded without a success", step.name)));
    }
    if !record.is_installed || old.is_installed {
        return None;
    }
    let versions = world.cluster(&record.cluster_uid, write);
    let why = wrong_under_all(&versions, |cluster| {
        let steps =
            Step::of_phase(Phase::Install).filter(|it| it.is_per_node && cluster.includes(it));
        let mut unfinished = steps.filter(|step| match step.work {
            Work::Ready => {
                let seen = world.node(&record.node_uid, write);
                !seen.iter().any(|it| cluster.has_passed_on(step, it))
            }
            _ => !record.passed.iter().any(|it| it == step.name),
        });
        Some(format!(
            "the install is recorded as complete before {} has passed",
            unfinished.next()?.name
        ))
    })?;
    Some(("record", why))
}
