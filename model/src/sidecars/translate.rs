//! Translates between the model's SidecarSet and the real one.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gamekeeper_core::api::SidecarSet as RealSet;
use gamekeeper_core::observed;
use gamekeeper_core::observed::{SidecarMark, SidecarMarks, mark_key};
use gamekeeper_core::sidecar_set::{Changing, MarkWrite as RealWrite, MatchedPod, Sidecars};
use gamekeeper_core::workload;
use gamekeeper_core::write;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::scope::Scope;
use crate::state::*;
use crate::translate::{Translator, clock, image_in, parse_uid, rev_of_image, time_of};

/// The name of the set.
const SET: &str = "proxies";
/// The name of the set's container.
pub const CONTAINER: &str = "proxy";

/// The real SidecarSets.
#[derive(Default)]
pub struct Sets {
    max_unavailable: u8,
    /// The set's revisions, by image.
    revisions: Vec<String>,
    shape: String,
    real: RefCell<HashMap<SidecarSet, Arc<Sidecars>>>,
}

impl Sets {
    /// The sets of a scope.
    pub fn new(scope: &Scope) -> Self {
        let Some(scope) = scope.sidecars else {
            return Self::default();
        };
        let mut sets = Self { max_unavailable: scope.max_unavailable, ..Self::default() };
        for image in 0..scope.revisions {
            let set = sets.get(SidecarSet { image, exists: true, ..SidecarSet::default() });
            sets.revisions.push(set.revision.clone());
            sets.shape.clone_from(&set.shape);
        }
        sets
    }

    fn get(&self, set: SidecarSet) -> Arc<Sidecars> {
        let mut real = self.real.borrow_mut();
        real.entry(set).or_insert_with(|| self.make(set)).clone()
    }

    fn make(&self, set: SidecarSet) -> Arc<Sidecars> {
        let real: RealSet = serde_json::from_value(json!({
            "metadata": {"name": SET},
            "spec": {
                "selector": {"matchLabels": {"app": "game"}},
                "containers": [{
                    "name": CONTAINER, "image": image_in(CONTAINER, set.image), "podInjectPolicy": "AfterAppContainer",
                }],
                "updateStrategy": {
                    "paused": set.paused,
                    "partition": set.partition,
                    "maxUnavailable": self.max_unavailable,
                },
            },
        }))
        .expect("a SidecarSet");
        Arc::new(Sidecars::of(&real).expect("a selector"))
    }

    fn rev_of(&self, revision: &str) -> Rev {
        let found = self.revisions.iter().position(|it| it == revision);
        found.expect("a revision of the set") as Rev
    }

    /// The hook target that names these revisions: the template's and, if there is one, the set's.
    pub fn target(&self, revision: &str, sidecars: Option<Rev>) -> String {
        match sidecars {
            None => revision.to_owned(),
            Some(rev) => format!("{revision}+{}", self.revisions[usize::from(rev)]),
        }
    }

    /// Splits a hook target into the template's revision and, if there is one, the set's.
    pub fn parse_target<'t>(&self, target: &'t str) -> (&'t str, Option<Rev>) {
        match target.split_once('+') {
            None => (target, None),
            Some((revision, set_revision)) => (revision, Some(self.rev_of(set_revision))),
        }
    }

    /// The marks of a pod.
    pub fn marks(&self, pod: &Pod) -> SidecarMarks {
        let marks = pod.mark.iter();
        marks.map(|mark| (SET.to_owned(), self.real_mark(mark))).collect()
    }

    fn real_mark(&self, mark: &Mark) -> SidecarMark {
        let name = |rev: Rev| self.revisions[usize::from(rev)].clone();
        SidecarMark {
            revision: name(mark.at),
            shape: self.shape.clone(),
            containers: vec![CONTAINER.to_owned()],
            left_out: None,
            token: mark.token.map(name),
            token_since: mark.since.map(clock),
            read_from: None,
        }
    }

    fn mark(&self, mark: &SidecarMark) -> Mark {
        Mark {
            at: self.rev_of(&mark.revision),
            token: mark.token.as_ref().map(|it| self.rev_of(it)),
            since: mark.token_since.map(time_of),
        }
    }

    fn parse_mark(&self, text: &str) -> Mark {
        self.mark(&serde_json::from_str(text).expect("a mark"))
    }

    /// The mark that a patch tests, and the mark that it sets.
    pub fn marks_of_patch(&self, patch: &write::InPlacePatch) -> (Option<Mark>, Option<Mark>) {
        let mut tested = patch.tokens.iter();
        let tested = tested.find(|(key, _)| *key == mark_key(SET));
        let mut annotations = patch.annotations.iter();
        let new_mark = annotations.find(|(key, _)| *key == mark_key(SET));
        let new_mark = new_mark.and_then(|(_, text)| text.as_deref());
        (tested.map(|(_, text)| self.parse_mark(text)), new_mark.map(|text| self.parse_mark(text)))
    }

    /// The revision of the set in the record of a change.
    pub fn recorded(&self, record: &observed::InPlaceRecord) -> Option<Rev> {
        record.sidecars.get(SET).map(|it| self.rev_of(it))
    }

    /// The revision of the set, as a real record contains it.
    pub fn record(&self, rev: Option<Rev>) -> BTreeMap<String, String> {
        let rev = rev.iter();
        let named = rev.map(|rev| (SET.to_owned(), self.revisions[usize::from(*rev)].clone()));
        named.collect()
    }

    /// The revision of the set that a new pod has, if it has the container and the mark.
    pub fn injected(&self, pod: &Value) -> Option<Rev> {
        let containers = pod["spec"]["containers"].as_array()?;
        let container = containers.iter().find(|it| it["name"] == CONTAINER)?;
        let text = pod["metadata"]["annotations"][mark_key(SET)].as_str()?;
        let mark = self.parse_mark(text);
        let image = rev_of_image(container["image"].as_str()?);
        assert_eq!((mark, image), (Mark::new(mark.at), mark.at), "{pod}");
        Some(mark.at)
    }
}

impl Translator {
    /// The real set, if it exists.
    pub fn sidecars(&self, set: SidecarSet) -> Option<Arc<Sidecars>> {
        set.exists.then(|| self.sets.get(set))
    }

    /// This time on the operator's clock.
    pub fn now(&self, now: Time) -> Timestamp {
        clock(now)
    }

    /// The pods as the set's planner observes them, with what the planner observes of their workload and hooks.
    pub fn matched(
        &self,
        pods: &[Pod],
        set: &Sidecars,
        workload: &Workload,
        runs: &[Run],
    ) -> Vec<MatchedPod> {
        let held = workload::why_sidecars_are_held(&self.workload(workload, pods)).map(Arc::new);
        let runs = runs.iter().filter(|run| run.id.sidecars.is_some());
        let runs: Vec<_> = runs.map(|run| self.run(run)).collect();
        let hook = |uid: &str| {
            let hooks = runs.iter();
            let mut hooks = hooks.filter_map(|run| workload::token_hook(run, &set.revision));
            hooks.find(|(pod, _)| *pod == uid).map(|(_, hook)| hook)
        };
        let active = pods.iter().filter(|pod| pod.is_active());
        let matched = active.map(|it| {
            let pod = self.pod(it);
            MatchedPod {
                ready: pod.ready_since.is_some(),
                changing: match it.orphan {
                    true if it.observed => Changing::No,
                    true => Changing::Others,
                    false => workload::changing(&pod, SET),
                },
                held: held.clone().filter(|_| !it.orphan),
                hook: hook(&pod.uid).unwrap_or_default(),
                deselected: false,
                namespace: pod.namespace,
                name: pod.name,
                uid: pod.uid,
                version: pod.resource_version,
                labels: (*pod.labels).clone(),
                marks: pod.sidecars,
                own: true,
                ..MatchedPod::default()
            }
        });
        matched.collect()
    }

    pub(super) fn mark_write(&self, write: &RealWrite) -> MarkWrite {
        MarkWrite {
            pod: parse_uid(&write.pod.uid),
            from: self.sets.mark(write.from),
            to: self.sets.mark(&write.to),
            updates: write.updates,
        }
    }
}
