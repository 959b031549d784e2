//! The state of the update of a SidecarSet's pods, according to the set's status.

use gamekeeper_core::advice::Advice;
use gamekeeper_core::api::ConditionType;

use super::set::Set;
use super::short_name;
use crate::verdict::{End, Verdict};

/// Judges the update.
pub fn judge(set: &Set) -> Verdict {
    let (end, word, sentence, commands) = state(set);
    let also = match word {
        "Deleting" | "Unseen" => Vec::new(),
        _ => set
            .unexpected_conditions()
            .filter(|it| it.message != sentence)
            .map(|it| format!("{} {}: {}", it.type_, it.reason, it.message))
            .collect(),
    };
    let commands = commands.into_iter().collect();
    Verdict { end, word, sentence, commands, also, holds_next: false, causes: Vec::new() }
}

/// What happens without further action by a user, as one word and as a sentence, and what a user can do.
fn state(set: &Set) -> (End, &'static str, String, Option<Advice>) {
    let name = short_name(set.name());
    if set.is_deleting() {
        let sentence = "is being deleted; running pods keep their sidecars".to_owned();
        return (End::InProgress, "Deleting", sentence, None);
    }
    let status = set.status();
    let ready = set.condition(ConditionType::Ready);
    if let Some(unreadable) = ready.filter(|it| it.reason == "Unreadable") {
        return (End::Stopped, "Blocked", unreadable.message.clone(), None);
    }
    let progressing = set.condition(ConditionType::Progressing);
    let is_observed = status.observed_generation >= set.generation();
    let Some(progressing) = progressing.filter(|_| is_observed) else {
        let sentence = format!(
            "the operator has not observed generation {} yet (last observed: {})",
            set.generation(),
            status.observed_generation
        );
        let purpose = "if this persists, check that gamekeeper serves SidecarSets with";
        return (End::InProgress, "Unseen", sentence, Some(game(purpose, "doctor")));
    };
    let sentence = progressing.message.clone();
    let clash = set.condition(ConditionType::Injecting).filter(|it| it.reason == "Clash");
    // Left out of all pods; otherwise it is told beside the progress of the others.
    if let Some(clash) = clash.filter(|_| status.matched_pods == 0) {
        let why = format!("{sentence}; {}", clash.message);
        let tree = game("see the pods with", &format!("tree {name}"));
        return (End::Stopped, "Blocked", why, Some(tree));
    }
    match progressing.reason.as_str() {
        "Complete" | "HeldBack" | "NotUpdate" => {
            let why = match status.updated_pods - status.updated_ready_pods {
                ..=0 => return (End::Done, "Complete", sentence, None),
                1 => "1 of them is not ready".to_owned(),
                more => format!("{more} of them are not ready"),
            };
            (End::InProgress, "Waiting", format!("{sentence}; {why}"), None)
        }
        "Paused" => {
            let resume = game("continue with", &format!("resume {name}"));
            (End::Stopped, "Paused", sentence, Some(resume))
        }
        "NotInPlace" => {
            let purpose = "recreate the pods of a workload, after their hooks, with";
            (End::Stopped, "Blocked", sentence, Some(game(purpose, "restart WORKLOAD")))
        }
        "Refused" | "FailedRevision" => (End::Stopped, "Blocked", sentence, None),
        "WaitsForWorkload" => (End::InProgress, "Waiting", sentence, None),
        _ => (End::InProgress, "Updating", sentence, None),
    }
}

/// A command of the plugin. SidecarSets have no namespace.
pub fn game(purpose: &'static str, command: &str) -> Advice {
    Advice { purpose, command: format!("kubectl game {command}") }
}
