//! Two operators and one lease: how soon the other one takes over, and that nobody else writes.
//! `bench leader` measures more takeovers than these.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::link::Link;
use e2e::cluster::operator::Operator;
use e2e::random::Random;
use e2e::takeover::{End, takeover};
use e2e::wait::{eventually, throughout};
use e2e::workload::manifest::Game;
use judge::{takeovers, writes_without_lease};
use serde_json::{Value, json};
use tokio::time::sleep;

e2e::tests![
    a_killed_leader_is_replaced_when_its_lease_is_over,
    a_leader_that_is_told_to_end_hands_over_at_once,
    nobody_writes_without_the_lease,
    who_may_not_see_a_kind_does_not_lead,
];

/// Takeovers of each sort. How fast they are is measured by `bench leader`, on a machine that does
/// nothing else; here they come in time for who waits until a lease is over, or need not wait for that.
const RUNS: i64 = 2;
/// A lease that is not given back is its holder's for so long after he renewed it.
const LEASE: Duration = Duration::from_secs(15);
/// He does so as often.
const RENEWAL: Duration = Duration::from_secs(2);

async fn a_killed_leader_is_replaced_when_its_lease_is_over(case: &mut Case) -> Result<()> {
    take_over_within(case, End::Killed, 2 * LEASE).await
}

async fn a_leader_that_is_told_to_end_hands_over_at_once(case: &mut Case) -> Result<()> {
    take_over_within(case, End::Terminated, LEASE - RENEWAL).await
}

async fn take_over_within(case: &mut Case, end: End, limit: Duration) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    let mut standby = case.another_operator("standby").await?;
    standby.start().await?;
    for run in 1..=RUNS {
        let took = takeover(case, &mut standby, end, 2 + run).await?;
        ensure!(took <= limit, "takeover {run} took {took:?}");
    }
    standby.terminate().await
}

/// How long operators are stopped and cut off, or longer, until one took over from the other.
const DISORDER: Duration = Duration::from_secs(60);

/// What happens to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The process stands still.
    Stopped,
    /// Nothing comes through to the API server and back.
    CutOff,
}

/// An operator that is stopped and cut off now and then.
struct Victim {
    operator: Operator,
    link: Link,
    fault: Fault,
    until: Instant,
}

impl Victim {
    async fn of(operator: Operator, case: &Case) -> Result<Self> {
        let link = Link::to(case.plane()).await?;
        operator.connect_through(&link)?;
        let (fault, until) = (Fault::None, Instant::now());
        Ok(Victim {
            operator,
            link,
            fault,
            until,
        })
    }

    /// Lets the next thing happen when it is time.
    async fn live(&mut self, random: &mut Random) -> Result<()> {
        if Instant::now() < self.until {
            return Ok(());
        }
        let before = self.fault;
        self.recover().await?;
        let time = match (before, random.below(2)) {
            (Fault::None, 0) => {
                self.operator.freeze().await?;
                self.fault = Fault::Stopped;
                random.between(500, 20_000)
            }
            (Fault::None, _) => {
                self.link.cut();
                self.fault = Fault::CutOff;
                random.between(500, 20_000)
            }
            _ => random.between(0, 8_000),
        };
        self.until = Instant::now() + time;
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        match self.fault {
            Fault::None => {}
            Fault::Stopped => self.operator.thaw().await?,
            Fault::CutOff => self.link.mend(),
        }
        self.fault = Fault::None;
        Ok(())
    }
}

async fn nobody_writes_without_the_lease(case: &mut Case) -> Result<()> {
    let (mut random, seed) = Random::seeded();
    println!("E2E_SEED={seed}");
    let story = disorder(case, &mut random).await;
    story.with_context(|| format!("again with E2E_SEED={seed}"))
}

async fn disorder(case: &mut Case, random: &mut Random) -> Result<()> {
    case.operator.terminate().await?;
    case.call_witness().await?;
    let mut victims = Vec::new();
    for account in ["one", "other"] {
        let operator = case.another_operator(account).await?;
        let mut victim = Victim::of(operator, case).await?;
        victim.operator.start().await?;
        victims.push(victim);
    }
    case.apply(Game::in_place(6).max_unavailable(3)).await?;
    case.until_settled(6).await?;
    let end = Instant::now() + DISORDER;
    let mut changes = 0;
    let writes = || case.plane().audit.writes(&case.namespace);
    while Instant::now() < end || takeovers(&writes()?) == 0 {
        for victim in &mut victims {
            victim.live(random).await?;
        }
        // The leader always has something to write.
        changes += 1;
        case.set_image(&format!("game:v{changes}")).await?;
        sleep(random.between(0, 300)).await;
    }
    for victim in &mut victims {
        victim.recover().await?;
    }
    case.until_settled(6).await?;
    for victim in &mut victims {
        victim.operator.terminate().await?;
    }
    let events = writes()?;
    let accounts = format!("system:serviceaccount:{}:", case.namespace);
    let wrong = writes_without_lease(&events, |user| user.starts_with(&accounts));
    ensure!(
        wrong.is_empty(),
        "written without the lease:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// What the operator may not do to [`UNSEEN`].
const FORBIDDEN: [&str; 2] = ["watch", "list"];
/// A resource that the operator reads, and that this test has none of.
const UNSEEN: &str = "persistentvolumeclaims";

async fn who_may_not_see_a_kind_does_not_lead(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let mut blind = case.another_operator("blind").await?;
    let usual = format!("gamekeeper-blind-{}", case.namespace);
    let delete = ["delete", "clusterrolebinding", &usual];
    case.plane().kubectl(&delete, "").await?;
    case.operator.terminate().await?;

    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gamekeeper";
    let rules = case.plane().get(role).await?["rules"].clone();
    let name = format!("blind-{}", case.namespace);
    for (verb, replicas) in FORBIDDEN.into_iter().zip(2..) {
        allow(case, &blind, &name, &without(&rules, verb)).await?;
        blind.launch().await?;
        does_not_lead(case, &blind, verb).await?;
        allow(case, &blind, &name, &rules).await?;
        case.scale(replicas).await?;
        case.until_settled(replicas.into()).await?;
        blind.terminate().await?;
    }
    for kind in ["clusterrolebinding", "clusterrole"] {
        case.plane().kubectl(&["delete", kind, &name], "").await?;
    }
    case.operator.start().await
}

async fn does_not_lead(case: &Case, blind: &Operator, verb: &str) -> Result<()> {
    let forbidden = format!("cannot {verb} resource \"{UNSEEN}\"");
    let is_as_ready_as_it_gets = async || {
        let (code, said) = blind.get("/readyz").await?;
        let is_ready = verb != "watch";
        ensure!((code == 200) == is_ready, "{code} {said}");
        ensure!(is_ready || said.contains("[Claim]"), "{said}");
        Ok(())
    };
    eventually("the log says why", Duration::from_secs(20), async || {
        let log = std::fs::read_to_string(blind.log())?.replace('\\', "");
        ensure!(log.contains(&forbidden), "{log}");
        // The kinds that it may see are listed a little later, perhaps.
        is_as_ready_as_it_gets().await
    })
    .await?;
    let silence = "gamekeeper_cache_silence_seconds{kind=\"Claim\"} ";
    throughout("nobody leads", Duration::from_secs(5), async || {
        is_as_ready_as_it_gets().await?;
        let (_, page) = blind.get("/metrics").await?;
        ensure!(page.contains(silence), "{page}");
        let lease = case.get("leases/gamekeeper").await?;
        let holder = lease["spec"]["holderIdentity"].as_str();
        ensure!(holder == Some(""), "{holder:?} leads");
        Ok(())
    })
    .await
}

/// The same rules, but without this verb on [`UNSEEN`].
fn without(rules: &Value, verb: &str) -> Value {
    let mut rules = rules.clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        let resources = rule["resources"].as_array();
        let is_about = resources.is_some_and(|it| it.contains(&json!(UNSEEN)));
        if let (true, Some(verbs)) = (is_about, rule["verbs"].as_array_mut()) {
            verbs.retain(|it| it != verb);
        }
    }
    rules
}

/// Gives an operator a role of its own.
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
