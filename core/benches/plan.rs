//! `cargo bench --bench plan`: how long a plan takes with 1,000 and with 10,000 pods, in each phase.
//!
//! No cluster is needed: the worlds come from the stories of the planner's tests, each brought to
//! the middle of its phase. Ten times as many pods should take ten times as long; the last column
//! is the time per pod with 10,000 pods, divided by that with 1,000. The benchmark fails if a phase
//! exceeds `GROWTH`, or `LIMIT` times what it takes to copy the pods.

#[path = "../src/simulated.rs"]
mod simulated;
#[path = "../src/workload/tests/story/mod.rs"]
#[expect(dead_code, reason = "the planner's tests use more of a story than the benchmark")]
mod story;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gamekeeper_core::{api, observed, workload, write};
use serde::Serialize;
use serde_json::{Value, json};

use story::{Story, set, story};
use workload::Planned;
use write::{Change, Write};

/// Numbers of pods: a plan for the second is compared with one for the first.
const PODS: [i32; 2] = [1_000, 10_000];
/// How many times each plan is made.
const ROUNDS: usize = 101;
/// The maximum median time of a plan for the larger number of pods, in times that it takes to copy these pods: an absolute
/// limit would be one on the machine.
const LIMIT: f64 = 8.0;
/// The maximum of `Row::growth`. If a plan compared every pod with every other one, the growth would
/// be 10.
const GROWTH: f64 = 3.0;
/// The number of bytes to read before each plan, so that no pod is left in the processor's caches: an operator
/// does other work between two plans, too.
const FLUSHED_BYTES: usize = 64 << 20;

/// A phase and its measurements for each number of pods.
struct Row {
    name: &'static str,
    plans: Vec<Planning>,
}

struct Planning {
    median: Duration,
    /// The 99th percentile.
    slow: Duration,
    actions: usize,
}

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.contains(wanted));
    let [fewer, more] = PODS;
    println!("{:<44}{:>28}{:>28}", "", format!("{fewer} pods"), format!("{more} pods"));
    println!(
        "{:<44}{:>10}{:>10}{:>8}{:>10}{:>10}{:>8}{:>8}",
        "ms", "p50", "p99", "actions", "p50", "p99", "actions", "growth"
    );
    let copy = time_to_copy(settled(&mut story(more, in_place())));
    println!("{:<44}{:>38.2}", "copying the pods", copy.as_secs_f64() * 1e3);
    let mut exit_code = ExitCode::SUCCESS;
    for (name, measure) in PHASES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let plans = PODS.map(measure).into();
        let row = Row { name, plans };
        println!("{row}");
        if let Err(why) = row.check_limits(copy) {
            eprintln!("{name}: {why}");
            exit_code = ExitCode::FAILURE;
        }
    }
    exit_code
}

impl Row {
    /// The time per pod with the larger number of pods, divided by that with the smaller number.
    fn growth(&self) -> f64 {
        let [fewer, more] = [0, 1].map(|n| self.plans[n].median.as_secs_f64());
        more / fewer * f64::from(PODS[0]) / f64::from(PODS[1])
    }

    fn check_limits(&self, copy: Duration) -> Result<(), String> {
        let times = self.plans[1].median.as_secs_f64() / copy.as_secs_f64();
        if times > LIMIT {
            return Err(format!(
                "half of all plans take more than {times:.1} times as long as copying the pods"
            ));
        }
        if self.growth() > GROWTH {
            return Err(format!(
                "a pod costs {:.1} times as much as with fewer pods",
                self.growth()
            ));
        }
        Ok(())
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<44}", self.name)?;
        for plan in &self.plans {
            let [median, slow] = [plan.median, plan.slow].map(|it| it.as_secs_f64() * 1e3);
            write!(f, "{median:>10.2}{slow:>10.2}{:>8}", plan.actions)?;
        }
        write!(f, "{:>8.2}", self.growth())
    }
}

type Measure = fn(i32) -> Planning;

const PHASES: [(&str, Measure); 18] = [
    ("GameDeployment: creating", |pods| measure(&growing(story(pods / 2, in_place()), pods))),
    ("GameDeployment: settled", |pods| measure(settled(&mut story(pods, in_place())))),
    ("GameDeployment: rolling update", |pods| measure(&half_updated(story(pods, rolling())))),
    ("GameDeployment: in-place update", |pods| measure(&half_updated(story(pods, in_place())))),
    ("GameDeployment: in-place update, hooks waiting", |pods| {
        measure(&waiting_to_update(story(pods, with_hook(in_place()))))
    }),
    ("GameDeployment: hot patch", |pods| measure(&half_updated(story(pods, hot_patch())))),
    ("GameDeployment: scale-in, hooks to start", |pods| {
        measure(&shrinking(story(pods, with_hook(in_place())), 0))
    }),
    ("GameDeployment: scale-in, hooks waiting", |pods| {
        measure(&shrinking(story(pods, with_hook(in_place())), pods / 2))
    }),
    ("GameDeployment: podsToDelete", |pods| {
        measure(&with_pods_to_delete(story(pods, with_hook(in_place())), pods))
    }),
    ("GameDeployment: podsToDelete, no such pods", |pods| {
        measure(&with_missing_pods_to_delete(story(pods, in_place()), pods))
    }),
    ("GameStatefulSet: creating", |pods| {
        measure(&growing(set(pods / 2, with_claims(in_place())), pods))
    }),
    ("GameStatefulSet: settled", |pods| measure(settled(&mut set(pods, with_claims(in_place()))))),
    ("GameStatefulSet: rolling update", |pods| {
        measure(&half_updated(set(pods, with_claims(rolling()))))
    }),
    ("GameStatefulSet: in-place update", |pods| {
        measure(&half_updated(set(pods, with_claims(in_place()))))
    }),
    ("GameStatefulSet: hot patch", |pods| {
        measure(&half_updated(set(pods, with_claims(hot_patch()))))
    }),
    ("GameStatefulSet: scale-in, hooks to start", |pods| {
        measure(&shrinking(set(pods, with_hook(with_claims(in_place()))), 0))
    }),
    ("GameStatefulSet: scale-in, hooks waiting", |pods| {
        measure(&shrinking(set(pods, with_hook(with_claims(in_place()))), pods / 2))
    }),
    ("GameStatefulSet: all nodes going", |pods| measure(&leaving(set(pods, guarded())))),
];

/// Makes `ROUNDS` plans for the same world.
fn measure<K: Planned + Serialize>(story: &Story<K>) -> Planning {
    let mut actions = 0;
    let times = times(|| {
        let plan = std::hint::black_box(story).plan();
        actions = plan.writes.len();
    });
    Planning { median: times[ROUNDS / 2], slow: times[ROUNDS * 99 / 100], actions }
}

/// The median time that it takes to copy the pods of a story.
fn time_to_copy<K>(story: &Story<K>) -> Duration {
    let copy = || story.world.pods.iter().map(|pod| observed::Pod::clone(pod)).collect::<Vec<_>>();
    times(|| drop(std::hint::black_box(copy())))[ROUNDS / 2]
}

/// How long `work` takes each time, in ascending order. It starts with cold caches.
fn times(mut work: impl FnMut()) -> Vec<Duration> {
    let flushed = vec![1_u8; FLUSHED_BYTES];
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            std::hint::black_box(flushed.iter().map(|it| usize::from(*it)).sum::<usize>());
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn with_update_type(type_: &str) -> Value {
    let mut spec = template("game:v1");
    spec["updateStrategy"] = json!({"type": type_, "maxUnavailable": "20%"});
    spec
}

fn template(image: &str) -> Value {
    json!({"template": {
        "metadata": {"annotations": {"team": "lobby"}},
        "spec": {"terminationGracePeriodSeconds": 60, "containers": [{
            "name": "game", "image": image,
            "env": [{"name": "REGION", "value": "eu"}, {"name": "MODE", "value": "ranked"}],
            "ports": [{"name": "game", "containerPort": 7777, "protocol": "UDP"}],
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
            "readinessProbe": {"tcpSocket": {"port": 7777}, "periodSeconds": 5},
        }]},
    }})
}

fn rolling() -> Value {
    with_update_type("RollingUpdate")
}

fn in_place() -> Value {
    with_update_type("InplaceUpdate")
}

fn hot_patch() -> Value {
    with_update_type("HotPatchUpdate")
}

/// The spec with a hook before pods are deleted or updated.
fn with_hook(mut spec: Value) -> Value {
    spec["preDeleteUpdateStrategy"] = json!({"hook": {"templateName": "test"}});
    spec
}

/// A spec whose pods are guarded, and leave nodes that are going to be removed.
fn guarded() -> Value {
    let mut spec = with_hook(with_claims(rolling()));
    spec["protection"] = json!({"pods": "Guarded", "onNodeGoing": "Move"});
    spec
}

/// All nodes are going to be removed, and the hooks of as many pods as maxUnavailable allows have just passed.
fn leaving<K: Planned + Serialize>(mut story: Story<K>) -> Story<K> {
    settled(&mut story);
    let taint = observed::Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    let taints: std::sync::Arc<[observed::Taint]> = [taint].into();
    let nodes = (0..100).map(|number| (format!("node-{number}"), std::sync::Arc::clone(&taints)));
    story.world.going_nodes = nodes.collect();
    story.kubelets_run = false;
    story.settle();
    story.hooks_end("", api::HookPhase::Successful);
    let deletes = |it: &Write| matches!(it.change(), Change::DeletePod(_));
    assert!(story.plan().writes.iter().any(deletes));
    story
}

/// The spec with a claim for each pod. Claims are deleted with their pods.
fn with_claims(mut spec: Value) -> Value {
    spec["podManagementPolicy"] = json!("Parallel");
    spec["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }]);
    spec["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    spec
}

fn settled<K: Planned + Serialize>(story: &mut Story<K>) -> &Story<K> {
    story.settle();
    // Pods of a real cluster are on many nodes.
    for (number, pod) in story.world.pods.iter_mut().enumerate() {
        std::sync::Arc::make_mut(pod).node = Some(format!("node-{}", number % 100));
    }
    story
}

fn growing<K: Planned + Serialize>(mut story: Story<K>, pods: i32) -> Story<K> {
    settled(&mut story);
    story.user(json!({"replicas": pods}));
    // Claims are created before their pods.
    while !story.plan().writes.iter().any(creates_pod) {
        story.reconcile();
    }
    story
}

fn creates_pod(action: &Write) -> bool {
    matches!(action.change(), Change::CreatePod(_))
}

/// Half of the pods run the next image, and others are being updated to it.
fn half_updated<K: Planned + Serialize>(mut story: Story<K>) -> Story<K> {
    settled(&mut story);
    story.user(template("game:v2"));
    let pods = story.world.pods.len();
    let updated_count = |story: &Story<K>| {
        let is_updated =
            |pod: &&observed::Pod| pod.containers[0].image == "game:v2" && pod.is_ready();
        story.pods().into_iter().filter(is_updated).count()
    };
    while updated_count(&story) < pods / 2 {
        assert!(story.reconcile(), "{:?}", story.status().conditions);
    }
    story.kubelets_run = false;
    story.reconcile();
    story
}

/// As many pods as maxUnavailable allows wait for their hooks.
fn waiting_to_update<K: Planned + Serialize>(mut story: Story<K>) -> Story<K> {
    settled(&mut story);
    story.user(template("game:v2"));
    story.settle();
    story
}

/// Half of the pods must be deleted, and the hooks of at least `waiting` of them are running.
fn shrinking<K: Planned + Serialize>(mut story: Story<K>, waiting: i32) -> Story<K> {
    settled(&mut story);
    let pods = story.world.pods.len();
    story.user(json!({"replicas": pods / 2}));
    while (story.world.runs.len() as i32) < waiting {
        story.reconcile();
    }
    story
}

/// Half of the pods are in podsToDelete, and as many of them as maxUnavailable allows wait for their hooks.
fn with_pods_to_delete(mut story: Story, pods: i32) -> Story {
    settled(&mut story);
    let names: Vec<_> = story.names().into_iter().step_by(2).collect();
    assert_eq!(names.len() as i32, pods / 2);
    story.user(json!({"scaleStrategy": {"podsToDelete": names}}));
    story.settle();
    story
}

/// The names in podsToDelete are those of pods that do not exist.
fn with_missing_pods_to_delete(mut story: Story, pods: i32) -> Story {
    settled(&mut story);
    let names: Vec<_> = (0..pods).map(|number| format!("none-{number}")).collect();
    story.user(json!({"scaleStrategy": {"podsToDelete": names}}));
    story
}
