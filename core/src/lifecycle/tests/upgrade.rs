//! Upgrades: their order, failures, cancellation and drains.

use serde_json::{Value, json};

use super::sim::Sim;
use crate::lifecycle::GamePod;

/// An installed cluster with upgrade hooks, whose version the user has changed.
fn upgrading() -> Sim {
    let mut sim = Sim::new(&json!({"hooks": {
        "PreClusterUpgrade": "/tmp/hooks/pre/a", "PreUpgrade": "/tmp/hooks/pre/b",
        "PostUpgrade": "/tmp/hooks/post/c", "PostClusterUpgrade": "/tmp/hooks/post/d",
    }}));
    sim.pass_all();
    assert!(sim.condition("Ready").starts_with("True"));
    set_version(&mut sim, "1.19.0");
    sim
}

fn set_version(sim: &mut Sim, version: &str) {
    sim.cluster.spec.version = Some(version.to_owned());
    sim.settle();
}

fn phase(sim: &Sim) -> String {
    let status = sim.cluster.status.as_ref().expect("a status");
    format!("{:?} {}", status.phase, status.version.as_deref().unwrap_or("none"))
}

/// Lets running scripts pass, and upgrades the kubelets that a step waits for, until nothing more happens. Returns
/// what happened.
fn play(sim: &mut Sim) -> Vec<String> {
    let mut story = Vec::new();
    let version = sim.cluster.spec.version.clone().expect("a version");
    loop {
        if let Some((step, node)) = sim.live().first().cloned() {
            story.push(format!("{step} {node}"));
            sim.end(&node, None);
            continue;
        }
        let condition = sim.condition("EnsureUpgrade");
        let Some(rest) = condition.strip_prefix("Unknown Waiting: node ") else {
            return story;
        };
        let name = rest.split(' ').next().expect("a name").to_owned();
        story.push(format!("kubelet {name}"));
        let node = sim.nodes.iter_mut().find(|it| it.name == name).expect("the node");
        node.version = format!("v{version}+k3s1");
        sim.settle();
    }
}

#[test]
fn nodes_are_upgraded_one_at_a_time_starting_with_masters() {
    let mut sim = upgrading();
    assert_eq!(phase(&sim), "Upgrading 1.18.3");
    let mut expected = vec!["EnsurePreClusterUpgradeHook master-0".to_owned()];
    for node in ["master-0", "world-1", "world-22"] {
        expected.push(format!("EnsurePreUpgradeHook {node}"));
        expected.push(format!("kubelet {node}"));
        expected.push(format!("EnsurePostUpgradeHook {node}"));
    }
    expected.push("EnsurePostClusterUpgradeHook master-0".to_owned());
    assert_eq!(play(&mut sim), expected);
    assert_eq!(phase(&sim), "Running 1.19.0");
    assert!(sim.condition("Ready").starts_with("True"));
    // The next upgrade runs all hooks again, even if it goes back to an earlier version.
    set_version(&mut sim, "v1.18.3");
    assert_eq!(play(&mut sim).len(), expected.len());
    assert_eq!(phase(&sim), "Running v1.18.3");
    // A leading v or a suffix makes no difference.
    set_version(&mut sim, "1.18.3+k3s1");
    assert_eq!(phase(&sim), "Running 1.18.3+k3s1");
    assert!(sim.live().is_empty());
}

#[test]
fn no_further_node_begins_its_upgrade_after_a_script_has_failed() {
    let mut sim = upgrading();
    sim.cluster.spec.features.parallelism = 2;
    sim.settle();
    sim.end("master-0", None);
    assert_eq!(sim.live().len(), 2);
    sim.end("master-0", Some("exit 1"));
    sim.end("world-1", None);
    let condition = sim.condition("EnsurePreUpgradeHook");
    assert!(condition.starts_with("False FailedUpdate: exec"), "{condition}");
    sim.nodes[1].version = "v1.19.0".to_owned();
    sim.settle();
    // The other node, whose upgrade has already begun, is upgraded completely.
    sim.end("world-1", None);
    assert!(sim.live().is_empty(), "{:?}", sim.live());
    sim.wait(10);
    let story = play(&mut sim);
    assert_eq!(phase(&sim), "Running 1.19.0", "{story:?}");
}

#[test]
fn an_upgrade_is_canceled_by_setting_the_version_back_before_a_kubelet_has_changed() {
    let mut sim = upgrading();
    sim.end("master-0", None);
    assert_eq!(sim.live()[0].0, "EnsurePreUpgradeHook");
    set_version(&mut sim, "1.18.3");
    assert!(sim.live().is_empty());
    assert_eq!(phase(&sim), "Running 1.18.3");
    assert!(sim.condition("Ready").starts_with("True"));
    // Steps that passed in the canceled upgrade do not count.
    set_version(&mut sim, "1.19.0");
    assert_eq!(sim.live()[0].0, "EnsurePreClusterUpgradeHook");
}

#[test]
fn a_version_that_is_set_back_too_late_is_reported() {
    let mut sim = upgrading();
    sim.end("master-0", None);
    sim.end("master-0", None);
    sim.nodes[0].version = "v1.19.0".to_owned();
    set_version(&mut sim, "1.18.3");
    let condition = sim.condition("EnsureUpgrade");
    assert!(
        condition.starts_with(
            "False FailedUpdate: node master-0 already has version v1.19.0, and scripts"
        ),
        "{condition}"
    );
    assert!(sim.condition("Ready").starts_with("False"));
    sim.now += jiff::SignedDuration::from_secs(60);
    sim.settle();
    assert!(sim.condition("Stalled").starts_with("True FailedUpdate"));
    sim.now += jiff::SignedDuration::from_secs(60);
    assert!(sim.plan().status.is_none(), "nothing has changed");
    sim.nodes[0].version = "v1.18.3".to_owned();
    sim.settle();
    assert!(sim.condition("Ready").starts_with("True"));
}

#[test]
fn a_node_that_was_upgraded_before_its_turn_runs_only_post_upgrade() {
    let mut sim = upgrading();
    sim.nodes[2].version = "v1.19.0".to_owned();
    let story = play(&mut sim);
    let story_of_node: Vec<_> = story.iter().filter(|it| it.ends_with("world-22")).collect();
    assert_eq!(story_of_node, ["EnsurePostUpgradeHook world-22"]);
    assert_eq!(phase(&sim), "Running 1.19.0");
}

#[test]
fn a_node_that_joins_is_installed_and_then_upgraded_if_it_is_older() {
    let mut sim = upgrading();
    sim.cluster.spec.features.hooks.pre_install = Some("/tmp/hooks/pre/e".to_owned());
    sim.nodes.push(super::sim::node("world-333"));
    let story = play(&mut sim);
    let story_of_node: Vec<_> = story.iter().filter(|it| it.ends_with("world-333")).collect();
    let expected = [
        "EnsureCopyFiles world-333",
        "EnsurePreInstallHook world-333",
        "EnsurePreUpgradeHook world-333",
        "kubelet world-333",
        "EnsurePostUpgradeHook world-333",
    ];
    assert_eq!(story_of_node, expected, "{story:#?}");
}

#[test]
fn a_deletion_cancels_the_upgrade() {
    let mut sim = upgrading();
    sim.delete();
    assert!(sim.is_deleted() && sim.live().is_empty());
}

fn draining() -> Sim {
    draining_with(&json!({"PreUpgrade": "/tmp/hooks/pre/b"}))
}

fn draining_with(hooks: &Value) -> Sim {
    let mut sim = Sim::new(&json!({
        "hooks": hooks,
        "upgrade": {"strategy": {"drainNodeBeforeUpgrade": true}},
    }));
    sim.pass_all();
    sim.pods = ["master-0", "world-1"]
        .map(|node| GamePod {
            node: node.to_owned(),
            namespace: "games".to_owned(),
            name: format!("arena-{node}"),
            uid: format!("{node}-pod"),
            move_requested: false,
        })
        .into();
    set_version(&mut sim, "1.19.0");
    sim
}

/// The names of the nodes that are cordoned.
fn cordoned(sim: &Sim) -> Vec<&str> {
    let nodes = sim.nodes.iter().filter(|it| it.unschedulable);
    nodes.map(|it| it.name.as_str()).collect()
}

#[test]
fn no_node_is_drained_before_pre_cluster_upgrade_has_passed() {
    let mut sim = draining_with(&json!({
        "PreClusterUpgrade": "/tmp/hooks/pre/a", "PreUpgrade": "/tmp/hooks/pre/b",
    }));
    let is_untouched = |sim: &Sim| cordoned(sim).is_empty() && !sim.pods[0].move_requested;
    assert_eq!(sim.live()[0].0, "EnsurePreClusterUpgradeHook");
    assert!(is_untouched(&sim));
    sim.end("master-0", Some("exit 1"));
    assert!(is_untouched(&sim));
    sim.wait(10);
    sim.end("master-0", None);
    assert_eq!(cordoned(&sim), ["master-0"]);
    assert!(sim.pods[0].move_requested);
}

#[test]
fn a_node_is_drained_before_its_upgrade_and_uncordoned_after_it() {
    let mut sim = draining();
    assert_eq!(cordoned(&sim), ["master-0"]);
    assert!(sim.pods[0].move_requested && !sim.pods[1].move_requested);
    assert!(sim.live().is_empty());
    let condition = sim.condition("EnsurePreUpgradeHook");
    assert!(
        condition.contains("node master-0 is being drained: 1 game pod is left"),
        "{condition}"
    );
    sim.pods.remove(0);
    sim.wait(5);
    assert_eq!(sim.live()[0].1, "master-0");
    sim.end("master-0", None);
    // The node stays cordoned until it is upgraded.
    assert_eq!(cordoned(&sim), ["master-0"]);
    sim.nodes[0].version = "v1.19.0".to_owned();
    sim.settle();
    assert_eq!(cordoned(&sim), ["world-1"]);
    sim.pods.clear();
    sim.wait(5);
    play(&mut sim);
    assert_eq!(phase(&sim), "Running 1.19.0");
    assert!(cordoned(&sim).is_empty());
}

/// The master is upgraded, and PreUpgrade runs on the cordoned node world-1.
fn upgrading_world_1() -> Sim {
    let mut sim = draining();
    sim.pods.clear();
    sim.wait(5);
    sim.end("master-0", None);
    sim.nodes[0].version = "v1.19.0".to_owned();
    sim.settle();
    assert_eq!(cordoned(&sim), ["world-1"]);
    sim.wait(5);
    sim
}

/// A node joins, and is installed.
fn add_installed_node(sim: &mut Sim, name: &str) {
    sim.nodes.push(super::sim::node(name));
    sim.settle();
    sim.end(name, None);
    sim.wait(5);
}

/// world-0, the node that joins, comes before world-1 by name.
#[test]
fn a_node_that_joins_does_not_take_the_turn_of_a_node_whose_upgrade_has_begun() {
    let mut sim = upgrading_world_1();
    sim.end("world-1", None);
    add_installed_node(&mut sim, "world-0");
    assert_eq!(cordoned(&sim), ["world-1"]);
    assert!(sim.live().is_empty(), "{:?}", sim.live());
}

#[test]
fn a_failed_upgrade_is_retried_even_if_a_node_that_joins_comes_before_it_by_name() {
    let mut sim = upgrading_world_1();
    sim.end("world-1", Some("exit 1"));
    add_installed_node(&mut sim, "world-0");
    sim.wait(300);
    let condition = sim.condition("Ready");
    assert_eq!(sim.live()[0].1, "world-1", "{condition}");
}

#[test]
fn nodes_whose_upgrade_has_begun_stay_selected_when_parallelism_is_lowered() {
    let mut sim = draining();
    sim.cluster.spec.features.parallelism = 2;
    sim.pods.retain(|pod| pod.node == "world-1");
    sim.settle();
    sim.end("master-0", None);
    sim.nodes[0].version = "v1.19.0".to_owned();
    sim.settle();
    assert_eq!(cordoned(&sim), ["world-1", "world-22"]);
    assert_eq!(sim.live()[0].1, "world-22");
    sim.cluster.spec.features.parallelism = 1;
    sim.settle();
    assert_eq!(cordoned(&sim), ["world-22"]);
}

/// The node is schedulable, although its record still shows a cordon.
#[test]
fn a_node_that_a_user_uncordons_during_its_drain_is_cordoned_again() {
    let mut sim = draining();
    sim.nodes[0].unschedulable = false;
    sim.settle();
    assert_eq!(cordoned(&sim), ["master-0"]);
}

#[test]
fn only_the_operators_own_cordons_are_removed() {
    let mut sim = draining();
    sim.nodes[1].unschedulable = true;
    sim.pods.clear();
    sim.wait(5);
    play(&mut sim);
    assert_eq!(phase(&sim), "Running 1.19.0");
    assert_eq!(cordoned(&sim), ["world-1"]);
}

#[test]
fn nodes_that_are_no_longer_upgraded_are_uncordoned() {
    let mut sim = draining();
    set_version(&mut sim, "1.18.3");
    assert!(cordoned(&sim).is_empty());
    let mut sim = draining();
    sim.nodes[0].labels.remove("kubernetes.io/os");
    sim.settle();
    assert_eq!(cordoned(&sim), ["world-1"]);
    let mut sim = draining();
    sim.delete();
    assert!(sim.is_deleted() && cordoned(&sim).is_empty());
}

#[test]
fn nothing_is_drained_while_paused() {
    let mut sim = draining();
    sim.pods.clear();
    sim.cluster.spec.paused = true;
    sim.nodes[0].version = "v1.19.0".to_owned();
    sim.wait(5);
    assert!(cordoned(&sim).is_empty(), "{:?}", cordoned(&sim));
}
