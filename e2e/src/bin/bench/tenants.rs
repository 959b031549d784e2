//! What a tenant who attacks the operator costs another one who rolls out behind hooks: the victim's hooks
//! and reconciles alone, under each attack, and under all attacks at once, on the same cluster, one after the
//! other. The attacker's own requests and the API server's answers take part of the same processors.

use std::fmt;

use anyhow::{Context, Result, ensure};
use e2e::tenants::{ATTACKS, Attack, Figures, Lease, Stage};
use futures::future::join_all;

/// Rollouts of the victim with and without attacks, unless the command line asks for another number.
pub const ROLLOUTS: usize = 15;
/// Pods of the victim.
const PODS: i64 = 20;

/// What was measured.
pub struct Measured {
    alone: Figures,
    attacked: Vec<(&'static str, Figures)>,
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
    let mut next = 3;
    let mut more = async |attacks| {
        let first = next;
        next += rollouts;
        under(stage, attacks, first, rollouts).await
    };
    let alone = more(&[]).await?;
    eprintln!("{alone:?}");
    let mut attacked = Vec::new();
    for attack in ATTACKS {
        eprintln!("{rollouts} rollouts under {}", attack.name);
        let figures = more(std::slice::from_ref(attack)).await?;
        eprintln!("{figures:?}");
        attacked.push((attack.name, figures));
    }
    eprintln!("{rollouts} rollouts under {} attacks", ATTACKS.len());
    attacked.push(("all at once", more(ATTACKS).await?));
    ensure!(stage.lease().await? == lease, "the lease was lost");
    Ok(Measured {
        alone,
        attacked,
        peak: stage.operator.peak_memory()?,
    })
}

/// Rollouts while these attacks go on.
async fn under(
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
    let since = stage.since_now().await?;
    for number in first..first + rollouts {
        stage.roll_out(&format!("game:r{number}")).await?;
    }
    stage.figures(&since).await
}

/// Plays attacks side by side, again and again; returns what went wrong.
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
            "| a victim's {} hooks each | hook p50 | p99 | to alone | reconcile p50 | p99 | to alone |",
            self.alone.hooks
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        let alone = std::iter::once(("alone", self.alone));
        for (name, figures) in alone.chain(self.attacked.iter().copied()) {
            write!(f, "| {} |", name.replace('_', " "))?;
            for (times, alone) in [
                (figures.hook, self.alone.hook),
                (figures.look, self.alone.look),
            ] {
                let [half, most] = times;
                let ratio = most.as_secs_f64() / alone[1].as_secs_f64();
                write!(f, " {half:.1?} | {most:.1?} | {ratio:.2} |")?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "\nmemory of the operator at most: {} MB",
            self.peak >> 20
        )
    }
}
