//! What a tenant who attacks the operator costs another one who rolls out behind hooks: the victim's hooks
//! and looks alone, and under all attacks at a time, on the same cluster, one after the other.

use std::fmt;

use anyhow::{Context, Result, ensure};
use e2e::tenants::{ATTACKS, Figures, Lease, Stage};
use futures::future::join_all;

/// Rollouts of the victim with and without attacks, unless the command line asks for another number.
pub const ROLLOUTS: usize = 15;
/// Pods of the victim.
const PODS: i64 = 20;

/// What was measured.
pub struct Measured {
    alone: Figures,
    attacked: Figures,
    peak: u64,
}

/// Measures so many rollouts of each sort.
pub async fn measure(rollouts: usize) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("bench-tenants-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let stage = Stage::set(&folder, PODS).await?;
    let measured = play(&stage, rollouts).await;
    let ended = stage.strike().await;
    let measured = measured?;
    ended?;
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

async fn play(stage: &Stage, rollouts: usize) -> Result<Measured> {
    let lease: Lease = stage.lease().await?;
    roll_out(stage, 1, 2).await?;
    eprintln!("{rollouts} rollouts alone");
    let alone = roll_out(stage, 3, rollouts).await?;
    eprintln!("{rollouts} rollouts under {} attacks", ATTACKS.len());
    let attacked = tokio::select! {
        attacked = roll_out(stage, 3 + rollouts, rollouts) => attacked?,
        ended = attack(stage) => return Err(ended?),
    };
    ensure!(stage.lease().await? == lease, "the lease was lost");
    Ok(Measured {
        alone,
        attacked,
        peak: stage.operator.peak_memory()?,
    })
}

async fn roll_out(stage: &Stage, first: usize, rollouts: usize) -> Result<Figures> {
    let since = stage.since_now().await?;
    for number in first..first + rollouts {
        stage.roll_out(&format!("game:r{number}")).await?;
    }
    stage.figures(&since).await
}

/// Plays all attacks side by side, again and again; returns what went wrong.
async fn attack(stage: &Stage) -> Result<anyhow::Error> {
    loop {
        let played = join_all(ATTACKS.iter().map(|attack| async move {
            let played = (attack.play)(stage).await;
            played.with_context(|| attack.name.to_owned())
        }));
        if let Some(error) = played.await.into_iter().find_map(Result::err) {
            return Ok(error);
        }
        stage.clear().await?;
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measured {
            alone,
            attacked,
            peak,
        } = self;
        writeln!(
            f,
            "| a victim's rollouts: {} and {} hooks | alone | under attack | ratio |",
            alone.hooks, attacked.hooks
        )?;
        writeln!(f, "|---|---|---|---|")?;
        for (name, alone, attacked) in [
            ("hook p50", alone.hook[0], attacked.hook[0]),
            ("hook p99", alone.hook[1], attacked.hook[1]),
            ("look p50", alone.look[0], attacked.look[0]),
            ("look p99", alone.look[1], attacked.look[1]),
        ] {
            let ratio = attacked.as_secs_f64() / alone.as_secs_f64();
            writeln!(f, "| {name} | {alone:.1?} | {attacked:.1?} | {ratio:.2} |")?;
        }
        writeln!(f, "| memory at most | | {} MB | |", peak >> 20)
    }
}
