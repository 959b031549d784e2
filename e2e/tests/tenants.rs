//! A tenant who attacks the operator does not stop another tenant's rollouts.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::tenants::{ATTACKS, Attack, HealthProbes, Stage};
use futures::future::{join_all, try_join};

/// The number of the victim's pods.
const PODS: i64 = 6;
/// The lease is long enough for an API server that other tests keep busy. `bench tenants` has the chart's.
const LEASE: &str = "lease.durationSeconds=60";
/// The peak memory that the operator may reach, in bytes.
const MEMORY: u64 = 400 << 20;
/// How long /healthz may take at any moment: as long as the chart's probes wait. `bench tenants` measures it in a release
/// build.
const HEALTH: Duration = Duration::from_secs(5);

/// Attacks that use up the memory of the attacker's namespace, which the other attacks' objects then lack. `bench tenants`
/// measures them.
const FILL_THE_CACHES: [&str; 4] = [
    "templates_of_small_maps",
    "records_of_many_maps",
    "claims_with_many_owners",
    "runs_that_fill_the_caches",
];

#[e2e::test]
async fn a_tenants_attacks_do_not_stop_another_tenant(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start(case.folder(), PODS, LEASE).await?;
    let outcome = attack_and_restart(&mut stage).await;
    let ended = stage.stop().await;
    outcome.and(ended)
}

/// Runs all attacks, and restarts the operator, which then lists everything that they have stored.
async fn attack_and_restart(stage: &mut Stage) -> Result<()> {
    stage.until_lease_has_flow_schema().await?;
    let (lease, process) = (stage.lease().await?, stage.operator.id()?);
    let health = stage.probe_health()?;
    let leaves_room = |attack: &&Attack| !FILL_THE_CACHES.contains(&attack.name);
    let attacks: Vec<_> = ATTACKS.iter().filter(leaves_room).collect();
    attack(stage, &attacks).await?;
    check_health(health)?;
    ensure!(stage.lease().await? == lease, "another replica leads");
    ensure!(stage.operator.id()? == process, "the operator was restarted");
    check_memory(stage)?;
    stage.restart().await?;
    let health = stage.probe_health()?;
    stage.roll_out("game:after-the-restart").await?;
    check_health(health)?;
    check_memory(stage)
}

fn check_health(health: HealthProbes) -> Result<()> {
    let slowest = health.slowest()?;
    eprintln!("tenants: /healthz took {slowest:?} at most");
    ensure!(slowest < HEALTH, "/healthz took {slowest:?}");
    Ok(())
}

fn check_memory(stage: &Stage) -> Result<()> {
    let peak = stage.operator.peak_memory()?;
    eprintln!("tenants: the operator used {} MB at most", peak >> 20);
    ensure!(peak < MEMORY, "the operator used {} MB", peak >> 20);
    Ok(())
}

/// Runs attacks concurrently, while the victim rolls out again and again.
async fn attack(stage: &Stage, attacks: &[&Attack]) -> Result<()> {
    let is_over = Cell::new(false);
    let playing = async {
        let played = join_all(attacks.iter().map(|attack| async move {
            let played = (attack.play)(stage).await;
            played.with_context(|| attack.name.to_owned())
        }));
        let played = played.await.into_iter().collect::<Result<Vec<()>>>();
        is_over.set(true);
        played
    };
    let victim = async {
        let mut rollouts = 2;
        while !is_over.get() {
            stage.roll_out(&format!("game:v{rollouts}")).await?;
            rollouts += 1;
        }
        Ok(())
    };
    try_join(playing, victim).await.map(|_| ())
}
