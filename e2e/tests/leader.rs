//! Two operators with one lease: how soon the standby takes over, and that only the leader writes.
//! `bench leader` measures more takeovers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::link::Link;
use e2e::cluster::operator::Operator;
use e2e::faults::{Script, WatchFault};
use e2e::random::Random;
use e2e::takeover::{Exit, takeover};
use e2e::wait::consistently;
use e2e::workload::manifest::Game;
use jiff::Timestamp;
use judge::object::text;
use judge::{Event, takeovers, writes_without_lease};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::sidecars::{log, remove, set};

/// How many takeovers of each kind are tried. Their limits are generous, because other tests run at the same time;
/// `bench leader` measures the exact times.
const RUNS: i64 = 2;
/// How long a lease is valid after its last renewal, unless it is released.
const LEASE: Duration = Duration::from_secs(15);
/// How often the leader renews the lease.
const RENEWAL: Duration = Duration::from_secs(2);
/// How long the last writes of a killed leader may be on their way.
const GRACE: Duration = Duration::from_secs(5);

#[e2e::test]
async fn a_killed_leader_is_replaced_when_its_lease_expires(case: &mut Case) -> Result<()> {
    take_over(case, Exit::Killed, |run, duration, _| {
        ensure!(duration <= 4 * LEASE, "takeover {run} took {duration:?}");
        Ok(())
    })
    .await
}

/// The process that a kubelet starts after a crash finds the file of the one before it.
#[e2e::test]
async fn a_killed_leader_is_succeeded_by_its_restarted_container(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    case.scale(3).await?;
    case.until_settled(3).await?;
    let started = *case.operator.starts().last().context("not started")?;
    let (before, after): (Vec<_>, Vec<_>) =
        leases(case)?.into_iter().partition(|event| event.received < started);
    let (renewed, acquired) = before.last().zip(after.first()).context("no writes of the lease")?;
    ensure!(holder(renewed) != holder(acquired), "{acquired:?} is not of another process");
    let waited = acquired.received.duration_since(started).unsigned_abs();
    ensure!(waited >= GRACE, "acquired {waited:?} after the start");
    let waited = acquired.received.duration_since(renewed.done).unsigned_abs();
    ensure!(
        waited < LEASE,
        "acquired {waited:?} after the last renewal, when the lease had expired"
    );
    Ok(())
}

#[e2e::test]
async fn a_terminated_leader_hands_over_immediately(case: &mut Case) -> Result<()> {
    take_over(case, Exit::Terminated, |run, _, leases| {
        let is_release = |lease: &Event| holder(lease) == Some("");
        let released = leases.iter().position(is_release);
        let released = released.with_context(|| format!("takeover {run}: not released"))?;
        let next = leases.get(released + 1);
        let next = next.with_context(|| format!("takeover {run}: not acquired"))?;
        let waited = next.received.duration_since(leases[released].done);
        // Otherwise, the lease could have been acquired because it had expired.
        ensure!(
            waited.unsigned_abs() < LEASE - RENEWAL,
            "takeover {run}: acquired {waited:#} after the release"
        );
        Ok(())
    })
    .await
}

/// Lets two operators take over from each other. `check` gets the number of the takeover, its duration, and the writes
/// of the lease since its start, oldest first.
async fn take_over(
    case: &mut Case,
    exit: Exit,
    check: impl Fn(i64, Duration, Vec<Event>) -> Result<()>,
) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    let mut standby = case.prepare_operator("standby").await?;
    standby.start().await?;
    for run in 1..=RUNS {
        let start = Timestamp::now();
        let duration = takeover(case, &mut standby, exit, 2 + run).await?;
        let leases = leases(case)?.into_iter().filter(|event| event.received > start);
        check(run, duration, leases.collect())?;
    }
    standby.terminate().await
}

/// The writes of leases, oldest first.
fn leases(case: &Case) -> Result<Vec<Event>> {
    let mut leases = case.plane().audit.writes(&case.namespace)?;
    leases.retain(|event| event.resource() == "leases" && event.succeeded());
    leases.sort_by_key(|event| event.received);
    Ok(leases)
}

/// The holder of the lease that a write sets; empty if the write releases the lease.
fn holder(write: &Event) -> Option<&str> {
    write.response_object.as_ref()?["spec"]["holderIdentity"].as_str()
}

/// For at least this long, and until a takeover has happened, operators are frozen and disconnected from time to time.
const DISORDER: Duration = Duration::from_secs(60);

/// A disruption of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disruption {
    None,
    /// The process is stopped (SIGSTOP).
    Frozen,
    /// The link to the API server is cut.
    Disconnected,
}

/// An operator that is frozen or disconnected from time to time.
struct UnreliableOperator {
    operator: Operator,
    link: Link,
    disruption: Disruption,
    next_change: Instant,
}

impl UnreliableOperator {
    async fn new(operator: Operator, case: &Case) -> Result<Self> {
        let link = Link::to(case.plane()).await?;
        operator.use_link(&link)?;
        let (disruption, next_change) = (Disruption::None, Instant::now());
        Ok(UnreliableOperator { operator, link, disruption, next_change })
    }

    /// Starts the next disruption, or ends the current one, when its time has come.
    async fn advance(&mut self, random: &mut Random) -> Result<()> {
        if Instant::now() < self.next_change {
            return Ok(());
        }
        let before = self.disruption;
        self.recover().await?;
        let time = match (before, random.below(2)) {
            (Disruption::None, 0) => {
                // An operator that has just lost its lease is being restarted, so it cannot be frozen. One that has
                // exited for another reason is not restarted: then its termination at the end fails.
                if self.operator.freeze().await.is_ok() {
                    self.disruption = Disruption::Frozen;
                }
                random.between(500, 20_000)
            }
            (Disruption::None, _) => {
                self.link.cut();
                self.disruption = Disruption::Disconnected;
                random.between(500, 20_000)
            }
            _ => random.between(0, 8_000),
        };
        self.next_change = Instant::now() + time;
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        match self.disruption {
            Disruption::None => {}
            Disruption::Frozen => self.operator.thaw().await?,
            Disruption::Disconnected => self.link.restore(),
        }
        self.disruption = Disruption::None;
        Ok(())
    }
}

#[e2e::test]
async fn only_the_lease_holder_writes(case: &mut Case) -> Result<()> {
    let (mut random, seed) = Random::seeded();
    println!("E2E_SEED={seed}");
    let outcome = disorder(case, &mut random).await;
    outcome.with_context(|| format!("reproduce with E2E_SEED={seed}"))
}

async fn disorder(case: &mut Case, random: &mut Random) -> Result<()> {
    case.operator.terminate().await?;
    case.start_witness().await?;
    let mut unreliable_operators = Vec::new();
    for account in ["one", "other"] {
        let operator = case.prepare_operator(account).await?;
        let mut unreliable = UnreliableOperator::new(operator, case).await?;
        unreliable.operator.start().await?;
        unreliable_operators.push(unreliable);
    }
    case.apply(Game::in_place(6).max_unavailable(3)).await?;
    case.until_settled(6).await?;
    let end = Instant::now() + DISORDER;
    let mut changes = 0;
    let writes = || case.plane().audit.writes(&case.namespace);
    while Instant::now() < end || takeovers(&writes()?) == 0 {
        for unreliable in &mut unreliable_operators {
            unreliable.advance(random).await?;
        }
        // The leader always has something to write.
        changes += 1;
        case.set_image(&format!("game:v{changes}")).await?;
        sleep(random.between(0, 300)).await;
    }
    for unreliable in &mut unreliable_operators {
        unreliable.recover().await?;
    }
    case.until_settled(6).await?;
    for unreliable in &mut unreliable_operators {
        // A process that was just restarted does not handle signals yet.
        let responds = async || unreliable.operator.get("/healthz").await;
        case.eventually("the operator responds", responds).await?;
        unreliable.operator.terminate().await?;
    }
    let events = writes()?;
    let accounts = format!("system:serviceaccount:{}:", case.namespace);
    let wrong = writes_without_lease(&events, |user| user.starts_with(&accounts));
    ensure!(wrong.is_empty(), "written without the lease:\n{}", wrong.join("\n"));
    Ok(())
}

/// The verbs on [`RESOURCE`] for which the operator lacks permission, one at a time.
const FORBIDDEN: [&str; 2] = ["watch", "list"];
/// A resource that the operator reads, and that this test does not create.
const RESOURCE: &str = "persistentvolumeclaims";

#[e2e::test]
async fn an_operator_without_access_to_a_kind_does_not_lead(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let mut operator = case.prepare_operator("unauthorized").await?;
    let binding = format!("gamekeeper-unauthorized-{}", case.namespace);
    let delete = ["delete", "clusterrolebinding", &binding];
    case.plane().kubectl(&delete, "").await?;
    case.operator.terminate().await?;

    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gamekeeper";
    let rules = case.plane().get(role).await?["rules"].clone();
    let name = format!("unauthorized-{}", case.namespace);
    for (verb, replicas) in FORBIDDEN.into_iter().zip(2..) {
        allow(case, &operator, &name, &rules_without(&rules, verb)).await?;
        let request = json!({"namespace": case.namespace, "verb": verb, "resource": RESOURCE});
        case.until_forbidden(&operator, &request).await?;
        operator.launch().await?;
        ensure_does_not_lead(case, &operator, verb).await?;
        allow(case, &operator, &name, &rules).await?;
        case.scale(replicas).await?;
        case.until_settled(replicas.into()).await?;
        operator.terminate().await?;
    }
    for kind in ["clusterrolebinding", "clusterrole"] {
        case.plane().kubectl(&["delete", kind, &name], "").await?;
    }
    case.operator.start().await
}

async fn ensure_does_not_lead(case: &Case, operator: &Operator, verb: &str) -> Result<()> {
    let forbidden = format!("cannot {verb} resource \"{RESOURCE}\"");
    let check_readiness = async || {
        let (code, body) = operator.get("/readyz").await?;
        // A watch alone fills the caches, so an operator without permission to list is ready.
        let is_ready = verb != "watch";
        ensure!((code == 200) == is_ready, "{code} {body}");
        ensure!(is_ready || body.contains("[Claim]"), "{body}");
        Ok(())
    };
    case.eventually("the log shows why", async || {
        let log = std::fs::read_to_string(operator.log())?.replace('\\', "");
        ensure!(log.contains(&forbidden), "{log}");
        // The lists of other kinds may complete a little later.
        check_readiness().await
    })
    .await?;
    let silence = "gamekeeper_cache_silence_seconds{kind=\"PersistentVolumeClaim\"} ";
    consistently("there is no leader", Duration::from_secs(5), async || {
        check_readiness().await?;
        let (_, page) = operator.get("/metrics").await?;
        ensure!(page.contains(silence), "{page}");
        ensure_no_leader(case).await
    })
    .await
}

/// An operator that cannot release its lease within two seconds exits, and the lease expires.
async fn ensure_no_leader(case: &Case) -> Result<()> {
    let lease = case.get("leases/gamekeeper").await?;
    let holder = lease["spec"]["holderIdentity"].as_str();
    let renewed: Timestamp = text(&lease, "/spec/renewTime").parse()?;
    let is_expired = renewed + LEASE < Timestamp::now();
    ensure!(holder == Some("") || is_expired, "{holder:?} leads");
    Ok(())
}

/// The same rules without this verb on [`RESOURCE`].
fn rules_without(rules: &Value, verb: &str) -> Value {
    let mut rules = rules.clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        let resources = rule["resources"].as_array();
        let has_resource = resources.is_some_and(|it| it.contains(&json!(RESOURCE)));
        if let (true, Some(verbs)) = (has_resource, rule["verbs"].as_array_mut()) {
            verbs.retain(|it| it != verb);
        }
    }
    rules
}

/// Gives an operator a ClusterRole with these rules.
async fn allow(case: &Case, operator: &Operator, name: &str, rules: &Value) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": operator.username()}],
    });
    case.plane().apply(&[role, binding]).await
}

/// Namespaces are watched once a SidecarSet is observed. Here, the standby observes the first SidecarSet only while it
/// compares its caches with the API server as the new leader.
#[e2e::test]
async fn a_leader_whose_caches_are_not_filled_releases_the_lease(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let mut standby = case.prepare_operator("standby").await?;
    let proxy = case.plane().fault_proxy().await?;
    standby.use_proxy(&proxy)?;
    standby.start().await?;
    let lag = |seconds| WatchFault::Lag(Duration::from_secs(seconds));
    let script = Script::default().watching("sidecarsets", lag(10), 0.0, 600.0);
    proxy.play(script.watching("namespaces", lag(600), 0.0, 600.0));
    case.apply(set(case, log())).await?;
    case.operator.terminate().await?;
    case.eventually("the standby releases the lease", async || {
        let log = std::fs::read_to_string(standby.log())?;
        ensure!(log.contains("releasing the lease"), "{log}");
        ensure_no_leader(case).await?;
        ensure!(!standby.is_alive()?, "the standby is still running");
        Ok(())
    })
    .await?;
    case.operator.start().await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    remove(case).await
}
