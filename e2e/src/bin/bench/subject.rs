//! The subjects that are measured, and how.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::wait::eventually;
use e2e::workload::manifest::Game;
use judge::{Counts, Event};
use kube::Client;
use serde_json::{Value, json};

use crate::bare::{Bare, GATE};
use crate::pods::Pods;
use crate::{MAX_UNAVAILABLE, PODS};

/// A client or controller that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The operator, with pods that have the readiness gate.
    Gated,
    /// The bare client.
    Bare,
    /// The bare client, with pods that have the readiness gate.
    BareGated,
    /// The operator, with pods that have no gate, because they were created for rolling updates.
    Plain,
    /// A native Deployment.
    Deployment,
    /// The operator, with pods that have ordinals and the readiness gate.
    Set,
    /// A native StatefulSet.
    StatefulSet,
}

/// The cost of one phase.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Time from the request until the last pod is done.
    pub time: Duration,
    /// Writes of the subject.
    pub writes: Counts,
    /// Writes of the kubelets that result from the subject's writes.
    pub kubelets: usize,
}

/// What each phase cost a subject.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Creating all pods.
    pub create: Phase,
    /// Updating all pods to another image; None where pods would be recreated one by one.
    pub update: Option<Phase>,
    /// Deleting all pods.
    pub delete: Phase,
    /// Memory in bytes that the pods added to the operator; None for other subjects.
    pub memory: Option<u64>,
}

impl Subject {
    /// The subjects of `bench deployments`, in the order of measurement. Subjects that are compared are adjacent.
    pub const DEPLOYMENTS: [Subject; 5] =
        [Subject::BareGated, Subject::Gated, Subject::Bare, Subject::Plain, Subject::Deployment];
    /// The subjects of `bench sets`.
    pub const SETS: [Subject; 3] = [Subject::BareGated, Subject::Set, Subject::StatefulSet];

    /// Whether the subject is the operator.
    pub fn is_ours(self) -> bool {
        matches!(self, Subject::Gated | Subject::Plain | Subject::Set)
    }

    /// The bare client that does the same work on pods of the same kind.
    pub fn bare(self) -> Subject {
        match self {
            Subject::Gated | Subject::Set => Subject::BareGated,
            _ => Subject::Bare,
        }
    }

    /// The native controller that does the same work.
    pub fn native(self) -> Subject {
        match self {
            Subject::Set => Subject::StatefulSet,
            _ => Subject::Deployment,
        }
    }

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Gated => "GameDeployment, in place, readiness gate",
            Subject::Plain => "GameDeployment, in place, no gate",
            Subject::Bare => "bare client, in place, no gate",
            Subject::BareGated => "bare client, in place, readiness gate",
            Subject::Deployment => "native Deployment, recreating",
            Subject::Set => "GameStatefulSet, Parallel, in place, readiness gate",
            Subject::StatefulSet => "native StatefulSet, Parallel",
        }
    }

    /// Measures all phases once.
    pub async fn measure(self, plane: &'static ControlPlane, round: usize) -> Result<Measured> {
        let folder = std::env::temp_dir().join(format!("bench-{}", std::process::id()));
        let mut case = Case::open(plane, &format!("bench-{self:?}-{round}"), &folder).await?;
        if self == Subject::Set {
            case.use_stateful_set();
        }
        if !self.is_ours() {
            case.operator.terminate().await?;
        }
        let pods = Pods::watch(plane.client(), &case.namespace);
        let client = case.operator.client().await?;
        let run = Run { pods, subject: self, case: &case, client };
        let measured = run.measure().await?;
        if case.operator.is_running() {
            case.operator.terminate().await?;
        }
        plane.audit.forget(&case.namespace);
        std::fs::remove_dir_all(&folder)?;
        Ok(measured)
    }
}

/// Writes so far.
struct Writes {
    /// The subject's writes.
    subject: Counts,
    /// The number of the kubelets' writes.
    kubelets: usize,
}

/// Waits until a subject has stopped writing, and returns all writes. The last status write of a phase may come after
/// its last pod.
pub async fn until_quiet<W>(
    writes: impl Fn() -> Result<W>,
    counts_of: impl Fn(&W) -> &Counts,
) -> Result<W> {
    let mut last = (counts_of(&writes()?).clone(), Instant::now());
    let quiet = Duration::from_secs(2);
    eventually("quiet", Duration::from_secs(60), async || {
        let now = writes()?;
        if *counts_of(&now) != last.0 {
            last = (counts_of(&now).clone(), Instant::now());
        }
        anyhow::ensure!(last.1.elapsed() > quiet, "still writing");
        Ok(now)
    })
    .await
}

struct Run<'a> {
    subject: Subject,
    case: &'a Case,
    pods: Pods,
    /// The bare client's. It has the operator's credentials, because an administrator's requests are authorized faster.
    client: Client,
}

impl Run<'_> {
    async fn measure(&self) -> Result<Measured> {
        self.prepare().await?;
        let before = self.case.operator.memory().ok();
        let create = self.phase(async || self.create().await).await?;
        let after = self.case.operator.memory().ok();
        let update = match self.subject {
            Subject::StatefulSet => None,
            _ => Some(self.phase(async || self.update().await).await?),
        };
        let delete = self.phase(async || self.delete().await).await?;
        let memory = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        Ok(Measured { create, update, delete, memory })
    }

    async fn phase(&self, work: impl AsyncFn() -> Result<()>) -> Result<Phase> {
        let before = self.writes()?;
        let start = Instant::now();
        work().await?;
        let time = start.elapsed();
        let after = until_quiet(|| self.writes(), |writes| &writes.subject).await?;
        Ok(Phase {
            time,
            writes: after.subject.since(&before.subject),
            kubelets: after.kubelets - before.kubelets,
        })
    }

    fn writes(&self) -> Result<Writes> {
        let events = self.case.plane().audit.writes(&self.case.namespace)?;
        let operator = self.case.operator.username();
        let is_by_subject = |event: &Event| match self.subject {
            Subject::Gated | Subject::Plain | Subject::Set => event.user.username == operator,
            Subject::Deployment | Subject::StatefulSet => {
                event.user_agent.starts_with("kube-controller-manager")
            }
            // This process sets no user agent, so its writes are those that no known client has made.
            Subject::Bare | Subject::BareGated => {
                let others = ["kwok", "kube-", "kubectl"];
                !others.iter().any(|other| event.user_agent.starts_with(other))
            }
        };
        // An operator keeps renewing its lease, which is not part of the measured work.
        let is_lease = |event: &Event| {
            let object = event.object_ref.as_ref();
            object.is_some_and(|object| object.resource == "leases")
        };
        let is_work = |event: &Event| is_by_subject(event) && !is_lease(event);
        let is_by_kubelet = |event: &Event| event.user_agent.starts_with("kwok");
        Ok(Writes {
            subject: Counts::of(&events, is_work),
            kubelets: Counts::of(&events, is_by_kubelet).sum(|_| true),
        })
    }

    /// Creates the workload, without pods.
    async fn prepare(&self) -> Result<()> {
        match self.subject {
            Subject::Gated => {
                let game = Game::in_place(0).max_unavailable(MAX_UNAVAILABLE);
                self.case.apply(game).await?
            }
            Subject::Plain => {
                let game = Game::rolling(0).max_unavailable(MAX_UNAVAILABLE);
                let game = game.set("/spec/template/spec/readinessGates", json!([]));
                self.case.apply(game).await?
            }
            Subject::Set => {
                let set = Game::parallel(0).updated_by("InplaceUpdate");
                self.case.apply(set.max_unavailable(MAX_UNAVAILABLE)).await?
            }
            Subject::Deployment => self.case.apply(deployment()).await?,
            Subject::StatefulSet => self.case.apply(stateful_set()).await?,
            Subject::Bare | Subject::BareGated => return Ok(()),
        };
        Ok(())
    }

    fn bare(&self) -> Bare<'_> {
        Bare::new(self.client.clone(), &self.case.namespace, &self.pods)
    }

    /// Sends the patch that starts a phase.
    async fn patch(&self, operations: Value) -> Result<()> {
        let namespace = &self.case.namespace;
        let path = match self.subject {
            Subject::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments/game"),
            Subject::StatefulSet => {
                format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/game")
            }
            _ => self.case.path(),
        };
        self.case.plane().patch(&path, &operations).await?;
        Ok(())
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        let replicas = json!({"op": "replace", "path": "/spec/replicas", "value": replicas});
        self.patch(json!([replicas])).await
    }

    async fn create(&self) -> Result<()> {
        match self.subject {
            Subject::Bare => self.bare().create(&template()).await?,
            Subject::BareGated => {
                let mut template = template();
                template["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
                self.bare().create(&template).await?;
            }
            _ => self.scale(PODS).await?,
        }
        self.pods.until_ready(PODS, "game:v1").await
    }

    async fn update(&self) -> Result<()> {
        let image = json!({"op": "replace",
            "path": "/spec/template/spec/containers/0/image", "value": "game:v2"});
        let in_place = json!({"op": "replace",
            "path": "/spec/updateStrategy/type", "value": "InplaceUpdate"});
        match self.subject {
            Subject::Bare | Subject::BareGated => self.bare().update("game:v2").await?,
            Subject::Plain => self.patch(json!([in_place, image])).await?,
            _ => self.patch(json!([image])).await?,
        }
        self.pods.until_ready(PODS, "game:v2").await
    }

    async fn delete(&self) -> Result<()> {
        match self.subject {
            Subject::Bare | Subject::BareGated => self.bare().delete().await?,
            _ => self.scale(0).await?,
        }
        self.pods.until("deleted", |pods| pods.len() == 0).await
    }
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "game"}},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    })
}

/// A native Deployment without pods.
pub fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "game"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "game"}},
            "template": template(),
            "strategy": {"rollingUpdate": {"maxUnavailable": MAX_UNAVAILABLE, "maxSurge": 0}},
        },
    })
}

fn stateful_set() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "game"},
        "spec": {
            "replicas": 0,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "game"}},
            "template": template(),
        },
    })
}
