//! What guards cost: nothing where no pod is guarded, and at most one more write for each guarded pod.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::{Game, hook_template};
use judge::{Counts, Event, WriteKind};
use serde_json::{Value, json};

use crate::guard_setup::{allowing_answer, budgets, install_policy, until_guarded};
use crate::protection::{release, uninstall};

/// What only guards add to objects: a label and a finalizer of the same name; a condition; annotations of workloads and
/// pods.
const TRACES: [&str; 7] = [
    "gamekeeper.tkex.tencent.com/guarded",
    "\"type\":\"Guarded\"",
    "gamekeeper.tkex.tencent.com/pre-delete-hook",
    "gamekeeper.tkex.tencent.com/waiting-since",
    "gamekeeper.tkex.tencent.com/released",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
];
/// Resources that the operator uses only for guards.
const RESOURCES: [&str; 4] = [
    "poddisruptionbudgets",
    "priorityclasses",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
/// The number of pods of each workload when writes are compared.
const PODS: u32 = 10;

#[e2e::test]
async fn without_guarded_pods_there_is_no_trace_of_a_guard(case: &mut Case) -> Result<()> {
    let class = release(case);
    case.plane()
        .apply(&[json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": class}, "value": 1, "preemptionPolicy": "Never",
        })])
        .await?;
    let class_flag = format!("--guarded-priority-class={class}");
    case.operator.terminate().await?;
    case.operator.add_args(vec![class_flag]);
    install_policy(case).await?;
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.hooks.answer("/", allowing_answer());

    let start = std::fs::metadata(case.plane().audit.path())?.len();
    case.operator.start().await?;
    run_lifecycle(case, Game::in_place(2).pre_inplace("test")).await?;
    let none = json!({"pods": "None"});
    let unprotected = Game::in_place(2).set("/spec/protection", none);
    run_lifecycle(case, unprotected.updated_by("RollingUpdate")).await?;
    case.use_stateful_set();
    run_lifecycle(case, Game::parallel(2)).await?;
    // The audit log shows a watch once it has ended.
    case.operator.terminate().await?;
    let found = traces(case, start, &class)?;
    ensure!(found.is_empty(), "{found:#?}");

    // A guarded workload with the same lifecycle leaves all of these traces, except that of a release by a user, and
    // its budgets are listed.
    let start = std::fs::metadata(case.plane().audit.path())?.len();
    case.operator.start().await?;
    run_lifecycle(case, Game::parallel(2).guarded()).await?;
    case.operator.terminate().await?;
    let found = traces(case, start, &class)?;
    let budget_list = "list poddisruptionbudgets".to_owned();
    let without_release = TRACES.iter().filter(|trace| !trace.ends_with("/released"));
    let mut expected =
        without_release.map(|it| (*it).to_owned()).chain([class.clone(), budget_list]);
    let missing = expected.find(|trace| !found.contains(trace));
    ensure!(missing.is_none(), "no {missing:?} in {found:#?}");
    let delete = ["delete", "priorityclass", &class];
    case.plane().kubectl(&delete, "").await?;
    uninstall(case, "guard").await
}

/// Creates a workload with a PreDelete hook, updates it, scales it in, restarts the operator, scales the workload
/// out, and deletes it.
async fn run_lifecycle(case: &mut Case, game: Game) -> Result<()> {
    case.apply(game.pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    case.until_settled(1).await?;
    case.operator.terminate().await?;
    case.operator.start().await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    case.kubectl(&["delete", "--wait", &case.workload()]).await?;
    case.eventually("the pods and the budget are deleted", async || {
        let (pods, budgets) = (case.list("pods").await?, budgets(case).await?);
        ensure!(pods.is_empty() && budgets.is_empty(), "{pods:#?}");
        Ok(())
    })
    .await
}

/// The traces of guards that the operator has left since position `start` of the audit log: in objects that it wrote,
/// and as requests (VERB RESOURCE).
fn traces(case: &Case, start: u64, class: &str) -> Result<Vec<String>> {
    let mut log = File::open(case.plane().audit.path())?;
    log.seek(SeekFrom::Start(start))?;
    let user = format!("\"username\":\"{}\"", case.operator.username());
    let mut found = Vec::new();
    let mut requests = 0;
    for line in BufReader::new(log).lines() {
        let line = line?;
        if !line.contains(&user) {
            continue;
        }
        requests += 1;
        let event: Event = serde_json::from_str(&line)?;
        if RESOURCES.contains(&event.resource()) {
            found.push(format!("{} {}", event.verb, event.resource()));
        }
        let bodies = [&event.request_object, &event.response_object];
        let bodies = bodies.map(|it| it.as_ref().map(Value::to_string).unwrap_or_default());
        let is_left = |trace: &&str| {
            // A patch may remove a trace that does not exist.
            let removal = format!("\"{trace}\":null");
            let mut bodies = bodies.iter();
            bodies.any(|body| body.replace(&removal, "").contains(trace))
        };
        let left = TRACES.into_iter().chain([class]).filter(is_left);
        found.extend(left.map(str::to_owned));
    }
    ensure!(requests > 0, "the audit log shows no request by the operator");
    found.sort();
    found.dedup();
    Ok(found)
}

/// The operator's writes, except those of a workload's status, events and leases, whose number depends on timing.
#[derive(Debug)]
struct Costs {
    /// While pods are created.
    creation: Counts,
    /// While they are deleted.
    deletion: Counts,
}

#[e2e::test]
async fn a_guarded_pod_costs_at_most_one_more_write_at_its_deletion(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    case.hooks.answer("/", allowing_answer());
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    for game in [Game::in_place(0), Game::parallel(0)] {
        let game = game.pre_delete("test");
        case.apply(&game).await?;
        case.until_settled(0).await?;
        let plain = costs(case).await?;
        case.apply(game.guarded()).await?;
        until_guarded(case, 0).await?;
        let guarded = costs(case).await?;
        // The annotations that mark a pod for deletion, and the status of a HookRun, are written once or not at all,
        // depending on timing.
        for (plain, guarded, additional) in [
            (&plain.creation, &guarded.creation, 0),
            (&plain.deletion, &guarded.deletion, PODS as usize),
        ] {
            let is_run_status = |it: &WriteKind| it.resource == "hookruns/status";
            let is_other = |it: &WriteKind| !is_run_status(it);
            let is_bounded = guarded.sum(is_other) <= plain.sum(is_other) + additional
                && guarded.sum(is_run_status) <= plain.sum(is_run_status) + PODS as usize;
            ensure!(is_bounded, "{plain}\nbut guarded:\n{guarded}");
        }
        case.kubectl(&["delete", &case.workload()]).await?;
        case.use_stateful_set();
    }
    uninstall(case, "guard").await
}

/// The costs of scaling the workload from no pods to [`PODS`] and back.
async fn costs(case: &Case) -> Result<Costs> {
    let before = case.writes()?;
    case.scale(PODS).await?;
    case.until_settled(PODS.into()).await?;
    let created = case.writes()?;
    case.scale(0).await?;
    case.until_settled(0).await?;
    let deleted = case.writes()?;
    let [creation, deletion] = [created.since(&before), deleted.since(&created)].map(|mut all| {
        let workload_status =
            format!("{}s/status", case.workload().split('/').next().unwrap_or_default());
        all.0.retain(|kind, _| {
            kind.code < 300
                && !["events", "leases", &workload_status].contains(&kind.resource.as_str())
        });
        all
    });
    ensure!(creation.resource("pods") >= PODS as usize, "{creation}");
    Ok(Costs { creation, deletion })
}
