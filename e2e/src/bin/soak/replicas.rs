//! The two replicas of the operator, and changes of the leader.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::wait::eventually;

use crate::figures::{Page, Sample};

/// Namespace of the release.
const SYSTEM: &str = "gamekeeper-system";
/// How long a takeover, or coming to rest, may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Both replicas.
pub struct Replicas {
    operators: [Operator; 2],
    /// Requests counted by processes that have ended.
    earlier_requests: u64,
}

impl Replicas {
    /// Installs the chart and starts two replicas, which keep their files in `folder`.
    pub async fn install(plane: &ControlPlane, folder: &Path) -> Result<Self> {
        plane.create_namespace(SYSTEM).await?;
        let install = [
            "install",
            "gamekeeper",
            CHART,
            "--namespace",
            SYSTEM,
            "--set=hooks.allowLoopback=true,admission.enabled=false",
            "--wait",
            "--timeout=300s",
        ];
        plane.helm(&install).await?;
        let start = async |name: &str| {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder)?;
            let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", &folder).await?;
            operator.start().await?;
            anyhow::Ok(operator)
        };
        Ok(Self { operators: [start("a").await?, start("b").await?], earlier_requests: 0 })
    }

    /// The index of the leader.
    async fn leader(&self) -> Result<usize> {
        eventually("a replica leads", LIMIT, async || {
            for (index, operator) in self.operators.iter().enumerate() {
                if Page::read(operator).await?.is_leader() {
                    return Ok(index);
                }
            }
            anyhow::bail!("no replica leads")
        })
        .await
    }

    /// Kills the leader in every other round and terminates it in the others, and starts it again as the standby.
    pub async fn change_leader(&mut self, round: usize) -> Result<()> {
        let leader = self.leader().await?;
        self.earlier_requests += Page::read(&self.operators[leader]).await?.requests();
        let operator = &mut self.operators[leader];
        match round % 2 {
            0 => operator.kill().await?,
            _ => operator.terminate().await?,
        }
        operator.launch().await?;
        let next = 1 - leader;
        eventually("the standby leads", LIMIT, async || {
            let page = Page::read(&self.operators[next]).await?;
            ensure!(page.is_leader(), "it does not lead yet");
            Ok(())
        })
        .await?;
        self.operators[leader].until_ready().await
    }

    /// Measures both replicas, once their queues are empty.
    pub async fn sample(&self, at: Duration, settled_after: Duration) -> Result<Sample> {
        let leader = self.leader().await?;
        let (operator, standby) = (&self.operators[leader], &self.operators[1 - leader]);
        let page = eventually("the leader's queues are empty", LIMIT, async || {
            let page = Page::read(operator).await?;
            ensure!(page.queued() == 0, "{} objects wait", page.queued());
            Ok(page)
        })
        .await?;
        let standby_page = Page::read(standby).await?;
        Ok(Sample {
            at,
            settled_after,
            processes: [operator.id()?, standby.id()?],
            memory: [operator.memory()?, standby.memory()?],
            descriptors: [page.descriptors(), standby_page.descriptors()],
            threads: [threads(operator)?, threads(standby)?],
            series: [page.series(), standby_page.series()],
            requests: self.earlier_requests + page.requests() + standby_page.requests(),
        })
    }

    /// Terminates both replicas.
    pub async fn terminate(&mut self) -> Result<()> {
        for operator in &mut self.operators {
            operator.terminate().await?;
        }
        Ok(())
    }
}

fn threads(operator: &Operator) -> Result<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", operator.id()?));
    Ok(tasks.context("the operator has exited")?.count() as u64)
}
