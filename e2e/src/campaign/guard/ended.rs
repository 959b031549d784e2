//! Which matches were ended, and by which client.

use std::collections::BTreeMap;

use judge::{End, Event, Life, pod_lives};

use super::actors::Actor;
use super::history::History;
use super::matches::Matches;

/// The table's row for matches that the workload's own controller ended.
pub(super) const OWN_CONTROLLER: &str = "rollouts and scaling by users";

/// How many matches a history played, and which of them were ended early.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// How many matches were played.
    pub(super) played: u64,
    /// How many matches were ended, by the name of the client that ended them.
    pub(super) by_client: BTreeMap<String, u64>,
    /// One line for each match that was ended.
    pub(super) lines: Vec<String>,
}

/// Finds the matches that were ended although their pod's hook refused.
pub(super) fn ended(
    events: &[Event],
    history: &History,
    matches: &Matches,
    operator: &str,
) -> Ended {
    let mut found = Ended::default();
    for life in pod_lives(events) {
        let match_end = matches.end_of(&life.uid);
        found.played += u64::from(life.began < match_end);
        let Some(end) = life.end.as_ref().filter(|end| end.at < match_end) else {
            continue;
        };
        let ended_by = culprit(end, history, operator);
        found.lines.push(line(&life, end, &ended_by));
        *found.by_client.entry(ended_by).or_default() += 1;
    }
    found
}

fn line(life: &Life, end: &End, client: &str) -> String {
    let (uid, name, at) = (&life.uid, &life.name, end.at);
    let (request, user, agent) = (&end.request, &end.user, &end.user_agent);
    format!("{at} {name} ({uid}) by {client}: {request} from {user} with {agent}")
}

/// What ended a match: a client, directly or through a controller of Kubernetes, or a user through the workload's own
/// controller.
fn culprit(end: &End, history: &History, operator: &str) -> String {
    if let Some(actor) = Actor::all().find(|actor| end.user == actor.user()) {
        return actor.name().to_owned();
    }
    let is_from = |name: &str| end.user.contains(name) || end.user_agent.contains(name);
    let client_that = |wanted: fn(Actor) -> bool| history.find(wanted);
    let actor = if is_from("generic-garbage-collector") || is_from("namespace-controller") {
        history.deleter()
    } else if is_from("taint-eviction-controller") || is_from("node-controller") {
        client_that(|actor| actor == Actor::Taint)
    } else if is_from("kube-scheduler") {
        client_that(|actor| actor == Actor::Preempt)
    } else {
        None
    };
    let is_own_controller = end.user == operator
        || is_from("replicaset-controller")
        || is_from("deployment-controller");
    match actor {
        Some(actor) => actor.name().to_owned(),
        None if is_own_controller => OWN_CONTROLLER.to_owned(),
        None => format!("{} ({})", end.user, end.user_agent),
    }
}

/// How often another client was refused a request that would have ended pods.
pub(super) fn count_refused(events: &[Event], operator: &str) -> u64 {
    let is_refused = |event: &&Event| {
        let by_others = event.username() != operator && event.resource() == "pods";
        by_others && event.is_write() && matches!(event.code(), 403 | 429) && ends_pods(event)
    };
    events.iter().filter(is_refused).count() as u64
}

fn ends_pods(event: &Event) -> bool {
    let subresource = event.object_ref.as_ref().map(|it| it.subresource.as_str());
    match event.verb.as_str() {
        "delete" | "deletecollection" => true,
        "create" => subresource == Some("eviction"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::campaign::guard::{History, Stimulus};

    const OPERATOR: &str = "system:serviceaccount:system:gamekeeper";

    /// The culprit, by name, if these clients act in the history and a request of this user with this user agent ends
    /// a match.
    fn culprit_of(actors: &[Actor], user: &str, user_agent: &str) -> String {
        let mut history = History::from_seed(0);
        let stimulus = |actor: &Actor| (history.length(), Stimulus::Other(*actor, 0));
        history.stimuli = actors.iter().map(stimulus).collect();
        let end = End {
            at: Timestamp::UNIX_EPOCH,
            user: user.to_owned(),
            user_agent: user_agent.to_owned(),
            request: String::new(),
        };
        culprit(&end, &history, OPERATOR)
    }

    #[test]
    fn the_action_of_a_controller_is_attributed_to_the_client_that_caused_it() {
        let controller = |name: &str| format!("kube-controller-manager/v1 kubernetes/{name}");
        let namespace = Actor::DeleteNamespace;
        let cases = [
            (vec![], Actor::Evict.user(), "kubectl", Actor::Evict.name()),
            (vec![], OPERATOR.to_owned(), "gamekeeper", OWN_CONTROLLER),
            (vec![namespace], "admin".to_owned(), "generic-garbage-collector", namespace.name()),
            (vec![namespace], "admin".to_owned(), "namespace-controller", namespace.name()),
            (vec![Actor::Taint], "admin".to_owned(), "node-controller", Actor::Taint.name()),
            (vec![Actor::Preempt], "admin".to_owned(), "kube-scheduler", Actor::Preempt.name()),
            (vec![], "admin".to_owned(), "replicaset-controller", OWN_CONTROLLER),
        ];
        for (actors, user, agent, expected) in cases {
            assert_eq!(culprit_of(&actors, &user, &controller(agent)), expected, "{agent}");
        }
        let stranger = culprit_of(&[], "admin", "kube-scheduler/v1");
        assert_eq!(stranger, "admin (kube-scheduler/v1)");
    }

    #[test]
    fn every_client_has_a_user_of_its_own() {
        let mut users: Vec<String> = Actor::all().map(Actor::user).collect();
        let count = users.len();
        users.sort();
        users.dedup();
        assert_eq!(users.len(), count, "{users:?}");
    }
}
