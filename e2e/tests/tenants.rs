//! A tenant who attacks the operator does not stop another tenant's rollouts.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::tenants::{ATTACKS, Stage};
use futures::future::{join_all, try_join};

e2e::tests![a_tenants_attacks_do_not_stop_another_tenant];

/// The number of the victim's pods.
const PODS: i64 = 6;
/// The peak memory that the operator may reach, in bytes.
const MEMORY: u64 = 400 << 20;

/// Attacks that use up the memory of the attacker's namespace, which the other attacks' objects then lack. `bench tenants`
/// measures them.
const FILL_THE_CACHES: [&str; 4] = [
    "templates_of_small_maps",
    "records_of_many_maps",
    "claims_with_many_owners",
    "runs_that_fill_the_caches",
];

async fn a_tenants_attacks_do_not_stop_another_tenant(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start(case.folder(), PODS).await?;
    let outcome = attack_and_restart(&mut stage).await;
    let ended = stage.stop().await;
    outcome.and(ended)
}

/// Runs all attacks, and restarts the operator, which then lists everything that they have stored.
async fn attack_and_restart(stage: &mut Stage) -> Result<()> {
    run_attacks(stage).await?;
    stage.restart().await?;
    stage.roll_out("game:v6").await?;
    check_memory(stage)
}

fn check_memory(stage: &Stage) -> Result<()> {
    let peak = stage.operator.peak_memory()?;
    ensure!(peak < MEMORY, "the operator used {} MB", peak >> 20);
    Ok(())
}

/// Runs all attacks concurrently while the victim rolls out repeatedly.
async fn run_attacks(stage: &Stage) -> Result<()> {
    stage.until_lease_has_flow_schema().await?;
    let (lease, process) = (stage.lease().await?, stage.operator.id()?);
    let attacks = ATTACKS.iter().filter(|attack| !FILL_THE_CACHES.contains(&attack.name));
    let attacks = join_all(attacks.map(|attack| async move {
        let played = (attack.play)(stage).await;
        played.with_context(|| attack.name.to_owned())
    }));
    let attacks = async { attacks.await.into_iter().collect::<Result<Vec<()>>>() };
    let victim = async {
        for number in 2..6 {
            stage.roll_out(&format!("game:v{number}")).await?;
        }
        Ok(())
    };
    try_join(attacks, victim).await?;
    ensure!(stage.lease().await? == lease, "another replica leads");
    ensure!(stage.operator.id()? == process, "the operator was restarted");
    check_memory(stage)
}
