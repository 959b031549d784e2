//! Why a pod is not ready, is not updated, or does not go away, as far as its status shows.

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;

/// Why a pod is not ready, or is still Terminating.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong.
    pub kind: TroubleKind,
    /// Since when.
    pub since: Timestamp,
    /// When it is over if nothing else happens; None if no time ends it.
    pub over_at: Option<Timestamp>,
}

/// What is wrong with a pod. A container is named; what the scheduler or the kubelet says is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// No scheduler has tried to find a node.
    NotScheduled,
    /// The scheduler finds no node.
    Unschedulable(String),
    /// The scheduler waits until others remove the pod's scheduling gates.
    SchedulingGated,
    /// The scheduler waits for a claim.
    ClaimNotBound(String),
    /// A container's image cannot be pulled.
    Image {
        /// The container.
        container: String,
        /// Its image.
        image: String,
        /// Why not.
        why: String,
    },
    /// A container cannot be created or started: a ConfigMap is missing, a command does not exist.
    NotCreated {
        /// The container.
        container: String,
        /// Why not.
        why: String,
    },
    /// A container ends again and again.
    Crashing {
        /// The container.
        container: String,
        /// How it ended last.
        ended: String,
    },
    /// The node has not started a container: it pulls the image, or mounts volumes.
    NotStarted {
        /// The container; empty if the node has not reported any.
        container: String,
        /// The node.
        node: String,
    },
    /// An init container has not completed.
    Initializing(String),
    /// A container runs, but its startup or readiness probe does not succeed.
    ProbeFails {
        /// The container.
        container: String,
        /// Whether it is the startup probe.
        startup: bool,
    },
    /// A readiness gate of another controller is not True.
    GateClosed(String),
    /// A container was restarted for an update in place, and what its node reports does not show which image it runs.
    ImageNotShown {
        /// The container.
        container: String,
        /// Its image.
        image: String,
        /// The image that the node reports.
        shown: String,
    },
    /// The pod's node does not respond.
    NodeUnreachable(String),
    /// A finalizer keeps a Terminating pod.
    Finalizer(String),
    /// The node has not ended a Terminating pod.
    NotEnded(String),
}

/// The longest time for which it is normal that a scheduler or a kubelet has done nothing yet, or a probe has not
/// succeeded.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);
/// How long a node may take to end a pod after its grace period.
const PATIENCE_WITH_END: SignedDuration = SignedDuration::from_secs(30);

impl Trouble {
    /// When this is worth telling: a pod that is about to start has no trouble yet.
    pub fn shown_from(&self) -> Timestamp {
        let patience = match self.kind {
            TroubleKind::NotScheduled
            | TroubleKind::NotStarted { .. }
            | TroubleKind::Initializing(_)
            | TroubleKind::ProbeFails { .. }
            | TroubleKind::GateClosed(_)
            | TroubleKind::ImageNotShown { .. } => PATIENCE,
            TroubleKind::NotEnded(_) => PATIENCE_WITH_END,
            TroubleKind::Unschedulable(_)
            | TroubleKind::SchedulingGated
            | TroubleKind::ClaimNotBound(_)
            | TroubleKind::Image { .. }
            | TroubleKind::NotCreated { .. }
            | TroubleKind::Crashing { .. }
            | TroubleKind::NodeUnreachable(_)
            | TroubleKind::Finalizer(_) => SignedDuration::ZERO,
        };
        self.since.checked_add(patience).unwrap_or(Timestamp::MAX)
    }

    /// Whether it is worth telling now.
    pub fn is_shown(&self, now: Timestamp) -> bool {
        self.shown_from() <= now && self.over_at.is_none_or(|over| over > now)
    }

    /// When it begins or ceases to be worth telling, if nothing else happens.
    pub fn changes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let times = [Some(self.shown_from()), self.over_at];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }
}

impl TroubleKind {
    /// The reason of conditions, causes and events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotScheduled | Self::Unschedulable(_) | Self::SchedulingGated => {
                Reason::PodUnschedulable
            }
            Self::ClaimNotBound(_) => Reason::ClaimNotBound,
            Self::Image { .. } => Reason::ImageNotPulled,
            Self::NotCreated { .. } => Reason::ContainerNotCreated,
            Self::Crashing { .. } => Reason::ContainerCrashing,
            Self::NotStarted { .. } | Self::Initializing(_) => Reason::ContainerNotStarted,
            Self::ProbeFails { .. } => Reason::ProbeNotSuccessful,
            Self::GateClosed(_) => Reason::ReadinessGateClosed,
            Self::ImageNotShown { .. } => Reason::ImageNotShown,
            Self::NodeUnreachable(_) => Reason::NodeUnreachable,
            Self::Finalizer(_) => Reason::PodHeldByFinalizer,
            Self::NotEnded(_) => Reason::PodNotEnded,
        }
    }

    /// The length of its texts.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::NotScheduled | Self::SchedulingGated => 0,
            Self::Unschedulable(text)
            | Self::ClaimNotBound(text)
            | Self::Initializing(text)
            | Self::GateClosed(text)
            | Self::NodeUnreachable(text)
            | Self::Finalizer(text)
            | Self::NotEnded(text) => text.len(),
            Self::Image { container, image, why } => container.len() + image.len() + why.len(),
            Self::ImageNotShown { container, image, shown } => {
                container.len() + image.len() + shown.len()
            }
            Self::NotCreated { container, why } => container.len() + why.len(),
            Self::Crashing { container, ended } => container.len() + ended.len(),
            Self::NotStarted { container, node } => container.len() + node.len(),
            Self::ProbeFails { container, .. } => container.len(),
        }
    }

    /// The trouble as a sentence about a pod of this name.
    pub fn sentence(&self, pod: &str) -> String {
        let with = |text: String, why: &str| match why.is_empty() {
            true => text,
            false => format!("{text}: {why}"),
        };
        match self {
            Self::NotScheduled => format!("pod {pod} has not been seen by any scheduler"),
            Self::Unschedulable(why) => with(format!("pod {pod} cannot be scheduled"), why),
            Self::SchedulingGated => {
                format!("pod {pod} is not scheduled until its schedulingGates are removed")
            }
            Self::ClaimNotBound(why) => with(format!("pod {pod} waits for its volume claim"), why),
            Self::Image { container, image, why } => with(
                format!("container {container} of pod {pod} cannot get its image {image}"),
                why,
            ),
            Self::NotCreated { container, why } => {
                with(format!("container {container} of pod {pod} cannot be started"), why)
            }
            Self::Crashing { container, ended } => {
                format!("container {container} of pod {pod} keeps ending, last with {ended}")
            }
            Self::NotStarted { container, node } if container.is_empty() => {
                format!("node {node} has not started pod {pod}")
            }
            Self::NotStarted { container, node } => {
                format!("node {node} has not started container {container} of pod {pod}")
            }
            Self::Initializing(container) => {
                format!("init container {container} of pod {pod} has not completed")
            }
            Self::ProbeFails { container, startup } => {
                let probe = if *startup { "startup" } else { "readiness" };
                format!(
                    "container {container} of pod {pod} runs, but its {probe} probe has not succeeded"
                )
            }
            Self::GateClosed(gate) => format!("readiness gate {gate} of pod {pod} is not True"),
            Self::ImageNotShown { container, image, shown } => format!(
                "container {container} of pod {pod} was restarted, but its node, which reports image {shown}, does not \
                 show whether it runs {image}; that is assumed after a while"
            ),
            Self::NodeUnreachable(node) => {
                format!("node {node}, on which pod {pod} runs, does not respond")
            }
            Self::Finalizer(finalizer) => {
                format!("pod {pod} is Terminating, and finalizer {finalizer} keeps it")
            }
            Self::NotEnded(node) => {
                format!("pod {pod} is Terminating, and node {node} has not ended it")
            }
        }
    }
}
