//! What to type: for each cause in a workload's status, the commands that show more about it or end it. They are complete:
//! typed as they are printed, they reach the workload.

use crate::api::{Cause, Reason};

/// The workload that commands are for.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `gd/NAME` or `gsts/NAME`.
    pub workload: String,
    /// The options that every command gets, with a leading space: `-n NAMESPACE`, and those that reach the cluster.
    pub options: String,
    /// Whether a rollout is in progress that can be undone.
    pub is_rolling: bool,
    /// Whether the pods are guarded.
    pub is_guarded: bool,
}

/// A command, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What the command does, as the beginning of a sentence.
    pub purpose: &'static str,
    /// The command.
    pub command: String,
}

impl Advice {
    /// `PURPOSE: COMMAND`.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.purpose, self.command)
    }
}

impl Subject {
    /// A command of the plugin.
    pub fn game(&self, purpose: &'static str, command: &str) -> Advice {
        let command = format!("kubectl game {command}{}", self.options);
        Advice { purpose, command }
    }

    fn kubectl(&self, purpose: &'static str, command: &str) -> Advice {
        Advice { purpose, command: format!("kubectl {command}{}", self.options) }
    }

    /// Ends a pause.
    pub fn resume(&self, purpose: &'static str) -> Advice {
        self.game(purpose, &format!("resume {}", self.workload))
    }

    /// Returns to the stable revision.
    pub fn undo(&self) -> Advice {
        self.game("roll back with", &format!("undo {}", self.workload))
    }

    /// Runs the failed hooks of a hook point again.
    pub fn retry(&self, purpose: &'static str, point: &str) -> Advice {
        self.game(purpose, &format!("retry {} --point {point}", self.workload))
    }

    /// Ends the match on a guarded pod.
    pub fn release(&self, pod: &str) -> Advice {
        self.game("to end the match now", &format!("release pod/{pod}"))
    }

    /// Lists the HookRuns.
    pub fn hooks(&self) -> Advice {
        self.game("see its measurements with", &format!("hooks {}", self.workload))
    }
}

/// The commands that help with a cause, the most helpful first.
pub fn advice(cause: &Cause, subject: &Subject) -> Vec<Advice> {
    let pod = cause.pods.first().map_or("", String::as_str);
    let undo = || subject.is_rolling.then(|| subject.undo());
    let describe = || subject.kubectl("see why with", &format!("describe pod {pod}"));
    let Some(reason) = Reason::parse(&cause.reason) else {
        return Vec::new();
    };
    let mut commands: Vec<Advice> = Vec::new();
    match reason {
        Reason::ImageNotPulled | Reason::ContainerNotCreated => {
            commands.extend(undo());
            commands.push(describe());
        }
        Reason::ContainerCrashing => {
            commands.extend(undo());
            let logs = format!("logs {pod} -c {} --previous", cause.container);
            commands.push(subject.kubectl("read its log with", &logs));
        }
        Reason::ProbeNotSuccessful => {
            commands.push(
                subject.kubectl("read its log with", &format!("logs {pod} -c {}", cause.container)),
            );
            commands.push(describe());
        }
        Reason::NodeUnreachable => {
            let node = format!("describe node {}", cause.node);
            commands.push(subject.kubectl("see the node with", &node));
        }
        Reason::PodUnschedulable
        | Reason::ContainerNotStarted
        | Reason::ReadinessGateClosed
        | Reason::PodNotEnded => commands.push(describe()),
        Reason::ClaimNotBound => {
            commands.push(subject.kubectl("see the claims with", "get persistentvolumeclaims"));
            commands.push(describe());
        }
        Reason::PodHeldByFinalizer => commands.push(subject.kubectl(
            "see its finalizers with",
            &format!("get pod {pod} -o jsonpath={{.metadata.finalizers}}"),
        )),
        Reason::DrainWaits => {
            let node = format!("move node/{} -A", cause.node);
            commands.push(subject.game("move them to other nodes after their hooks with", &node));
        }
        Reason::HookRunning | Reason::HookNotMeasured => commands.push(subject.hooks()),
        Reason::HookNotSuccessful => {
            commands.push(subject.retry("fix the hook or what it checks, then", &cause.hook_point));
            if subject.is_guarded && cause.hook_point == "PreDelete" {
                commands.push(subject.release(pod));
            }
        }
        Reason::HookRemoved => commands.push(subject.release(pod)),
        Reason::Paused | Reason::PausedByCanaryPauseStep | Reason::ResumeByApplyIgnored => {
            commands.push(subject.resume("continue with"));
        }
        Reason::PausedByStepBasedHook => {
            commands.push(subject.retry("run it again with", "Step"));
            commands.extend(undo());
            commands.push(subject.resume("continue anyway with"));
        }
        Reason::HookTemplateNotFound
        | Reason::HookTemplateUnreadable
        | Reason::HookArgumentMissing
        | Reason::HookCannotSucceed => {
            commands.push(subject.kubectl("see the templates with", "get hooktemplates"));
        }
        Reason::SidecarsUnreadable => {
            commands.push(subject.kubectl("see the sets with", "get sidecarsets"));
        }
        Reason::TemplateRefused
        | Reason::NotInPlace
        | Reason::HotPatchNotSupported
        | Reason::HotPatchNotShown
        | Reason::ResizeNotPossible
        | Reason::PodsEndAtOnce => {
            commands.extend(undo());
            commands.push(subject.game("see the pods with", &format!("tree {}", subject.workload)));
        }
        Reason::ClaimTerminating | Reason::ClaimNotOurs | Reason::FailedClaim => {
            commands.push(subject.kubectl("see the claims with", "get persistentvolumeclaims"));
        }
        Reason::CreatingInBatches
        | Reason::NodeDraining
        | Reason::PodsToDelete
        | Reason::RolloutUnderWay
        | Reason::RollingOut
        | Reason::PodsUnavailable
        | Reason::RevisionNotProven => {
            commands.push(subject.game("watch it with", &format!("tree {} -w", subject.workload)));
        }
        Reason::NoPods => {
            let scale = format!("scale {} --replicas=1", subject.workload);
            commands.push(subject.kubectl("let it run with", &scale));
        }
        Reason::AwaitingDeletion => {
            commands
                .push(subject.game("see the old pods with", &format!("tree {}", subject.workload)));
            commands
                .push(subject.game("skip the step with", &format!("promote {}", subject.workload)));
        }
        Reason::AllPodsAvailable
        | Reason::Complete
        | Reason::PodsGuarded
        | Reason::ImageNotShown => {}
        Reason::Unreadable
        | Reason::RevisionNotFound
        | Reason::PodIndexInvalid
        | Reason::PodIndexExhausted
        | Reason::FailedCreate
        | Reason::FailedDelete
        | Reason::FailedHookRun
        | Reason::FailedUpdate
        | Reason::FailedRevision
        | Reason::FailedPatch
        | Reason::FailedCleanUp
        | Reason::AnotherBudget
        | Reason::GuardNotInForce
        | Reason::PodsUnlabeled
        | Reason::NoPreDeleteHook
        | Reason::BudgetNotDeleted
        | Reason::ProgressDeadlineExceeded => {
            commands.push(
                subject.kubectl("see the events with", &format!("describe {}", subject.workload)),
            );
        }
    }
    commands
}
