//! Two operators and one lease: how soon the other one takes over, and that nobody else writes.
//! `bench leader` measures more takeovers than these.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::audit::leadership::{takeovers, writes_without_lease};
use e2e::case::Case;
use e2e::link::Link;
use e2e::manifest::Game;
use e2e::operator::Operator;
use e2e::random::Random;
use e2e::takeover::{End, takeover};
use tokio::time::sleep;

e2e::tests![
    a_killed_leader_is_replaced_when_its_lease_is_over,
    a_leader_that_is_told_to_end_hands_over_at_once,
    nobody_writes_without_the_lease,
];

/// Takeovers of each sort.
const RUNS: i64 = 2;

async fn a_killed_leader_is_replaced_when_its_lease_is_over(case: &mut Case) -> Result<()> {
    take_over_within(case, End::Killed, Duration::from_secs(17)).await
}

async fn a_leader_that_is_told_to_end_hands_over_at_once(case: &mut Case) -> Result<()> {
    take_over_within(case, End::Terminated, Duration::from_secs(2)).await
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

/// How long operators are stopped and cut off.
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

/// An operator that is stopped and cut off now and then, and started anew when it ends.
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

    /// Starts it anew when it has ended, and lets the next thing happen when it is time.
    async fn live(&mut self, random: &mut Random) -> Result<()> {
        if self.fault != Fault::Stopped && self.operator.has_lost_its_lease()? {
            self.operator.launch().await?;
        }
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
    while Instant::now() < end {
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
    let settled = case.until_settled(6);
    tokio::pin!(settled);
    loop {
        tokio::select! {
            settled = &mut settled => break settled.map(|_| ())?,
            () = sleep(Duration::from_millis(200)) => {}
        }
        for victim in &mut victims {
            if victim.operator.has_lost_its_lease()? {
                victim.operator.launch().await?;
            }
        }
    }
    for victim in &mut victims {
        victim.operator.terminate().await?;
    }
    let events = case.plane().audit.writes(&case.namespace)?;
    let accounts = format!("system:serviceaccount:{}:", case.namespace);
    let wrong = writes_without_lease(&events, |user| user.starts_with(&accounts));
    ensure!(
        wrong.is_empty(),
        "written without the lease:\n{}",
        wrong.join("\n")
    );
    ensure!(takeovers(&events) > 0, "nobody took over");
    Ok(())
}
