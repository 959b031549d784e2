//! How an attack by one tenant slows down another whose rollouts wait for hooks: the victim's hooks, reconciles
//! and API writes without attacks, under each attack, under all attacks at once, and after a restart of the operator
//! under all of them. The attacker, the API server and the operator share the machine's processors.

use std::fmt;

use anyhow::{Context, Result, ensure};
use e2e::tenants::{ATTACKS, Attack, Figures, Lease, Stage};
use futures::future::join_all;

/// The default number of the victim's rollouts per row.
pub const ROLLOUTS: usize = 15;
/// Pods of the victim.
const PODS: i64 = 20;

/// The results.
pub struct Measured {
    alone: Figures,
    attacked: Vec<(&'static str, Figures)>,
}

/// The row of all attacks.
const ALL: &str = "all_at_once";

/// Measures this number of rollouts without attacks, under each attack, and under all attacks at once; or only under the
/// attack of this name.
pub async fn measure(only: Option<&str>, rollouts: usize) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("bench-tenants-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut stage = Stage::start(&folder, PODS, "lease.durationSeconds=15").await?;
    let measured = play(&mut stage, only, rollouts).await;
    let ended = stage.stop().await;
    let measured = measured?;
    ended?;
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

async fn play(stage: &mut Stage, only: Option<&str>, rollouts: usize) -> Result<Measured> {
    let mut rows: Vec<(&str, &'static [Attack])> =
        ATTACKS.iter().map(|attack| (attack.name, std::slice::from_ref(attack))).collect();
    rows.push((ALL, ATTACKS));
    rows.retain(|(name, _)| only.is_none_or(|only| only == *name));
    ensure!(!rows.is_empty(), "there is no such attack");
    let lease: Lease = stage.lease().await?;
    roll_out(stage, 1, 2).await?;
    eprintln!("{rollouts} rollouts alone");
    let mut next = 3;
    let mut measure_next = async |stage: &Stage, attacks| {
        let first = next;
        next += rollouts;
        let figures = measure_under(stage, attacks, first, rollouts).await?;
        eprintln!("{figures:?}");
        anyhow::Ok(figures)
    };
    let alone = measure_next(stage, &[]).await?;
    let mut attacked = Vec::new();
    for (name, attacks) in rows {
        eprintln!("{rollouts} rollouts under {name}");
        attacked.push((name, measure_next(stage, attacks).await?));
    }
    ensure!(stage.lease().await? == lease, "the lease was lost");
    if only.is_none_or(|only| only == ALL) {
        // It lists what the attacks store meanwhile.
        stage.restart().await?;
        eprintln!("{rollouts} rollouts after a restart");
        attacked.push(("all at once, after a restart", measure_next(stage, ATTACKS).await?));
    }
    Ok(Measured { alone, attacked })
}

/// Measures rollouts while these attacks run.
async fn measure_under(
    stage: &Stage,
    attacks: &'static [Attack],
    first: usize,
    rollouts: usize,
) -> Result<Figures> {
    if attacks.is_empty() {
        return roll_out(stage, first, rollouts).await;
    }
    let figures = tokio::select! {
        figures = roll_out(stage, first, rollouts) => figures?,
        ended = attack(stage, attacks) => return Err(ended?),
    };
    if attacks.len() == 1 {
        // What all attacks have stored stays, for a restart.
        stage.clear().await?;
    }
    Ok(figures)
}

async fn roll_out(stage: &Stage, first: usize, rollouts: usize) -> Result<Figures> {
    let since = stage.start_measurement().await?;
    for number in first..first + rollouts {
        stage.roll_out(&format!("game:r{number}")).await?;
    }
    stage.figures(since).await
}

/// Runs attacks concurrently and repeatedly. Returns the first failure.
async fn attack(stage: &Stage, attacks: &[Attack]) -> Result<anyhow::Error> {
    loop {
        let played = join_all(attacks.iter().map(|attack| async move {
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
        writeln!(
            f,
            "| {} hooks of the victim per row | hook p50 | p99 | vs. alone | its delivery p50 | p99 | vs. alone \
             | the operator's part p50 | p99 | vs. alone | reconcile p50 | p99 | vs. alone \
             | API write p50 | p99 | vs. alone | slowest /healthz | operator, MB | operator, CPUs | kube-apiserver, CPUs |",
            self.alone.hooks
        )?;
        writeln!(f, "{}|", "|---".repeat(20))?;
        let alone = std::iter::once(("alone", self.alone));
        for (name, figures) in alone.chain(self.attacked.iter().copied()) {
            write!(f, "| {} |", name.replace('_', " "))?;
            for (times, alone) in [
                (figures.hook, self.alone.hook),
                (figures.delivery, self.alone.delivery),
                (figures.operator, self.alone.operator),
                (figures.reconcile, self.alone.reconcile),
                (figures.write, self.alone.write),
            ] {
                let [p50, p99] = times;
                let ratio = p99.as_secs_f64() / alone[1].as_secs_f64();
                write!(f, " {p50:.1?} | {p99:.1?} | {ratio:.2} |")?;
            }
            let [operator, server] = figures.busy;
            let (health, memory) = (figures.health, figures.memory >> 20);
            writeln!(f, " {health:.1?} | {memory} | {operator:.2} | {server:.2} |")?;
        }
        Ok(())
    }
}
