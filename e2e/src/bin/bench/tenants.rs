//! How an attack by one tenant slows down another whose rollouts wait for hooks: the victim's hooks, reconciles
//! and API writes without attacks, under each attack, and under all attacks at once. The attacker, the API server
//! and the operator share the machine's processors.

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
    peak: u64,
}

/// Measures this number of rollouts without attacks, under each attack, and under all attacks at once.
pub async fn measure(rollouts: usize) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("bench-tenants-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let stage = Stage::start(&folder, PODS).await?;
    let measured = play(&stage, rollouts).await;
    let ended = stage.stop().await;
    let measured = measured?;
    ended?;
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

async fn play(stage: &Stage, rollouts: usize) -> Result<Measured> {
    let lease: Lease = stage.lease().await?;
    roll_out(stage, 1, 2).await?;
    eprintln!("{rollouts} rollouts alone");
    let mut next = 3;
    let mut measure_next = async |attacks| {
        let first = next;
        next += rollouts;
        measure_under(stage, attacks, first, rollouts).await
    };
    let alone = measure_next(&[]).await?;
    eprintln!("{alone:?}");
    let mut attacked = Vec::new();
    for attack in ATTACKS {
        eprintln!("{rollouts} rollouts under {}", attack.name);
        let figures = measure_next(std::slice::from_ref(attack)).await?;
        eprintln!("{figures:?}");
        attacked.push((attack.name, figures));
    }
    eprintln!("{rollouts} rollouts under {} attacks", ATTACKS.len());
    attacked.push(("all at once", measure_next(ATTACKS).await?));
    ensure!(stage.lease().await? == lease, "the lease was lost");
    Ok(Measured { alone, attacked, peak: stage.operator.peak_memory()? })
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
    stage.clear().await?;
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
             | API write p50 | p99 | vs. alone | slowest /healthz | operator, CPUs | kube-apiserver, CPUs |",
            self.alone.hooks
        )?;
        writeln!(f, "{}|", "|---".repeat(19))?;
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
            writeln!(f, " {:.1?} | {operator:.2} | {server:.2} |", figures.health)?;
        }
        writeln!(f, "\npeak memory of the operator: {} MB", self.peak >> 20)
    }
}
