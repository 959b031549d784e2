//! `history` and `undo` of a SidecarSet: its revisions, and the rollback to one of them.
//!
//! Revisions are read only from the namespace that the set's status names. In other namespaces, users without
//! permissions for SidecarSets could create a ControllerRevision that claims to belong to the set.

use gamekeeper_core::api::names::{SIDECAR_SET_LABEL, controller_of};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use serde_json::{Map, Value};

use super::set::Set;
use super::short_name;
use crate::age::age;
use crate::change::undo::unknown_previous;
use crate::cluster::Cluster;
use crate::error::{Error, refuse};
use crate::style::{Style, Tone};
use crate::table::{Cell, Table};

/// The fields of a set that a revision records.
const FIELDS: [&str; 5] =
    ["initContainers", "containers", "volumes", "imagePullSecrets", "patchPodMetadata"];

/// A set with its revisions.
#[derive(Clone, Debug)]
pub struct History {
    pub set: Set,
    /// Newest first.
    pub revisions: Vec<ControllerRevision>,
}

/// What a command changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The set after the change.
    pub after: Value,
    /// The outcome, printed after the name of the set.
    pub outcome: String,
    /// A note for the user.
    pub note: Option<String>,
}

impl History {
    /// Keeps only the revisions that the set controls.
    pub fn new(set: Set, mut revisions: Vec<ControllerRevision>) -> Self {
        let uid = set.typed.metadata.uid.as_deref();
        revisions.retain(|it| {
            let owner = controller_of(&it.metadata);
            uid.is_some() && owner.map(|owner| owner.uid.as_str()) == uid
        });
        revisions.sort_by_key(|it| std::cmp::Reverse(it.revision));
        Self { set, revisions }
    }

    pub async fn read(cluster: &Cluster, set: Set) -> Result<Self, Error> {
        let namespace = set.status().revision_namespace;
        if namespace.is_empty() {
            let name = short_name(set.name());
            return refuse(format!(
                "{name} has no revisions yet: the operator has not written its status"
            ));
        }
        let selector = format!("{SIDECAR_SET_LABEL}={}", set.name());
        let revisions = cluster.in_namespace(namespace).select(&selector).await?;
        Ok(Self::new(set, revisions))
    }

    /// The revision with this number.
    pub fn revision_numbered(&self, number: i64) -> Result<&ControllerRevision, Error> {
        let mut revisions = self.revisions.iter();
        if let Some(found) = revisions.find(|it| it.revision == number) {
            return Ok(found);
        }
        let known = self.revisions.iter().rev();
        let known: Vec<String> = known.map(|it| it.revision.to_string()).collect();
        let (name, known) = (short_name(self.set.name()), known.join(", "));
        refuse(format!("{name} has no revision {number}; its revisions are {known}"))
    }

    /// The table, oldest first as in kubectl.
    pub fn table(&self, style: Style, now: Timestamp) -> String {
        let mut table = Table::new(["REVISION", "STATE", "IMAGES", "AGE", "NAME"]);
        for revision in self.revisions.iter().rev() {
            let name = revision.name_any();
            let roles = self.roles(&name);
            let tone = match roles.first() {
                Some(&"latest") => Tone::Good,
                Some(_) => Tone::Busy,
                None => Tone::Faint,
            };
            let state = match roles.is_empty() {
                true => "-".to_owned(),
                false => roles.join(","),
            };
            table.push([
                revision.revision.to_string().into(),
                Cell::state(tone, &state),
                images(revision).into(),
                age(revision.creation_timestamp().as_ref(), now).into(),
                name.into(),
            ]);
        }
        table.render(style)
    }

    /// The roles of a revision: `latest` if it is the set's newest, `stable` if most pods have it, and `pinned` if a
    /// user has chosen it for new pods.
    fn roles(&self, name: &str) -> Vec<&'static str> {
        let status = self.set.status();
        let pinned = self.set.spec().injection_strategy.pinned();
        let roles = [
            ("latest", status.latest_revision == name),
            ("stable", status.stable_revision == name),
            ("pinned", pinned == Some(name)),
        ];
        let roles = roles.into_iter().filter(|(_, has_role)| *has_role);
        roles.map(|(role, _)| role).collect()
    }

    /// One revision with what it injects.
    pub fn details(&self, revision: &ControllerRevision) -> Result<String, serde_yaml_ng::Error> {
        let content = serde_yaml_ng::to_string(&content_of(revision))?;
        Ok(format!(
            "{} with revision #{} ({})\n{content}",
            self.set.full_name(),
            revision.revision,
            revision.name_any()
        ))
    }

    /// Rolls back to a revision; by default, to the stable one if it is not the latest, and to the previous one
    /// otherwise.
    pub fn undo(&self, to: Option<i64>) -> Result<Edit, Error> {
        let set = &self.set;
        let revision = match to {
            Some(number) if number > 0 => self.revision_numbered(number)?,
            _ => self.default_target()?,
        };
        let (number, content) = (revision.revision, content_of(revision));
        let has_containers = ["containers", "initContainers"]
            .iter()
            .any(|field| content[*field].as_array().is_some_and(|it| !it.is_empty()));
        if !has_containers {
            let revision = revision.name_any();
            return Err(Error::Unexpected(format!(
                "revision {number} ({revision}) contains no containers"
            )));
        }
        if revision.name_any() == set.status().latest_revision && self.is_observed() {
            let outcome =
                format!("skipped rollback (current containers already match revision {number})");
            return Ok(Edit { after: set.object.clone(), outcome, note: None });
        }
        let mut after = set.object.clone();
        let spec = &mut after["spec"];
        for field in FIELDS {
            let value = &content[field];
            match value.as_array() {
                Some(items) if !items.is_empty() => spec[field] = value.clone(),
                _ => drop(spec.as_object_mut().and_then(|spec| spec.remove(field))),
            }
        }
        Ok(Edit {
            after,
            outcome: format!("rolled back to revision {number}"),
            note: self.note(&revision.name_any()),
        })
    }

    fn default_target(&self) -> Result<&ControllerRevision, Error> {
        let (status, name) = (self.set.status(), short_name(self.set.name()));
        let mut revisions = self.revisions.iter();
        let is_rolling = status.stable_revision != status.latest_revision;
        let stable =
            revisions.clone().find(|it| is_rolling && it.name_any() == status.stable_revision);
        if stable.is_none() && !self.is_observed() {
            return refuse(unknown_previous(&name, ""));
        }
        let found = stable.or_else(|| revisions.find(|it| it.name_any() != status.latest_revision));
        found.map_or_else(|| refuse(format!("{name} has no earlier revision to roll back to")), Ok)
    }

    /// Whether the status describes the newest spec.
    fn is_observed(&self) -> bool {
        self.set.status().observed_generation == self.set.generation()
    }

    /// A note on what keeps the rollback from reaching pods, if anything does.
    fn note(&self, revision: &str) -> Option<String> {
        let (spec, name) = (self.set.spec(), short_name(self.set.name()));
        let pinned = spec.injection_strategy.pinned();
        let pinned = pinned.filter(|pinned| *pinned != revision);
        let is_paused = spec.update_strategy.paused;
        match pinned {
            Some(pinned) => Some(format!(
                "new pods still get revision {pinned}, until spec.injectionStrategy.revision is removed"
            )),
            None if is_paused => Some(format!(
                "updates are paused: no running pod is updated until kubectl game resume {name}"
            )),
            None => None,
        }
    }
}

/// What a revision injects.
fn content_of(revision: &ControllerRevision) -> Value {
    let data = revision.data.as_ref().map(|data| &data.0["spec"]);
    let content = data.and_then(Value::as_object).cloned();
    // Fields other than FIELDS are ignored.
    let content = content.into_iter().flatten();
    let known = content.filter(|(field, _)| FIELDS.contains(&field.as_str()));
    Value::Object(known.collect::<Map<_, _>>())
}

fn images(revision: &ControllerRevision) -> String {
    let content = content_of(revision);
    let lists = ["initContainers", "containers"].into_iter();
    let containers = lists.flat_map(|list| content[list].as_array().into_iter().flatten());
    let images = containers.filter_map(|it| it["image"].as_str());
    images.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::now;

    fn revision(number: i64, image: &str, owner: &str) -> ControllerRevision {
        let revision = json!({
            "metadata": {
                "name": format!("log-{number}"), "creationTimestamp": "2026-11-21T09:40:00Z",
                "ownerReferences": [{
                    "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "SidecarSet", "name": "log",
                    "uid": owner, "controller": true,
                }],
            },
            "data": {"spec": {
                "containers": [{"name": "log", "image": image, "upgradeStrategy": {"upgradeType": "ColdUpgrade"}}],
                "initContainers": [], "volumes": [], "imagePullSecrets": [],
                "selector": {"matchLabels": {"app": "other"}},
            }},
            "revision": number,
        });
        serde_json::from_value(revision).expect("a revision")
    }

    /// The history of a set at revision 3, after a merge patch of the set.
    fn history(change: Value) -> History {
        let mut set = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "SidecarSet",
            "metadata": {"name": "log", "uid": "1", "generation": 2},
            "spec": {
                "selector": {"matchLabels": {"app": "arena"}},
                "containers": [{"name": "log", "image": "log:3"}],
                "volumes": [{"name": "logs", "emptyDir": {}}],
            },
            "status": {
                "observedGeneration": 2, "latestRevision": "log-3", "stableRevision": "log-3",
                "revisionNamespace": "gamekeeper-system",
            },
        });
        json_patch::merge(&mut set, &change);
        let set = Set::read(serde_json::from_value(set).expect("an object")).expect("a SidecarSet");
        let revisions = [1, 3, 2].map(|number| revision(number, &format!("log:{number}"), "1"));
        let foreign = revision(9, "evil:1", "2");
        History::new(set, revisions.into_iter().chain([foreign]).collect())
    }

    fn image(undo: &Edit) -> &str {
        let image = &undo.after["spec"]["containers"][0]["image"];
        image.as_str().unwrap_or_default()
    }

    #[test]
    fn revisions_are_listed_with_their_roles() {
        let change = json!({
            "spec": {"injectionStrategy": {"revision": {"revisionName": "log-1"}}},
            "status": {"stableRevision": "log-2"},
        });
        insta::assert_snapshot!(history(change).table(Style::PLAIN, now()), @r"
        REVISION   STATE    IMAGES   AGE   NAME
        1          pinned   log:1    25m   log-1
        2          stable   log:2    25m   log-2
        3          latest   log:3    25m   log-3
        ");
        let found = history(json!({}));
        let third = found.revision_numbered(3).expect("a revision");
        assert_eq!(found.roles(&third.name_any()), ["latest", "stable"]);
        let details = found.details(third).expect("YAML");
        assert!(details.contains("image: log:3") && !details.contains("selector"), "{details}");
    }

    #[test]
    fn undo_prefers_the_stable_revision_to_the_previous_one() {
        let rolling = history(json!({"status": {"stableRevision": "log-1"}}));
        let undo = rolling.undo(None).expect("a change");
        assert_eq!((image(&undo), undo.outcome.as_str()), ("log:1", "rolled back to revision 1"));
        let undo = history(json!({})).undo(None).expect("a change");
        assert_eq!(image(&undo), "log:2");
        assert_eq!(undo.note, None);
        // Fields that the revision lacks are removed, and those that no revision records are kept.
        assert_eq!(undo.after["spec"].get("volumes"), None);
        assert_eq!(undo.after["spec"]["selector"]["matchLabels"]["app"], "arena");
    }

    #[test]
    fn undo_needs_a_revision_while_the_operator_has_not_observed_the_spec() {
        let changed = history(json!({"metadata": {"generation": 3}}));
        let error = changed.undo(None).expect_err("unknown").to_string();
        assert_eq!(
            error,
            "the operator has not observed the latest scs/log yet, so the previous revision is not known: wait until it has \
             (see kubectl game status scs/log), or choose one with --to-revision"
        );
        assert_eq!(image(&changed.undo(Some(3)).expect("a change")), "log:3");
        let rolling = json!({"metadata": {"generation": 3}, "status": {"stableRevision": "log-1"}});
        assert_eq!(image(&history(rolling).undo(None).expect("a change")), "log:1");
    }

    #[test]
    fn undo_rolls_back_to_the_given_revision() {
        let found = history(json!({}));
        assert_eq!(image(&found.undo(Some(1)).expect("a change")), "log:1");
        let skipped = found.undo(Some(3)).expect("a change");
        assert_eq!(skipped.after, found.set.object);
        assert_eq!(
            skipped.outcome,
            "skipped rollback (current containers already match revision 3)"
        );
        let error = found.undo(Some(9)).expect_err("a revision of another set").to_string();
        assert_eq!(error, "scs/log has no revision 9; its revisions are 1, 2, 3");
    }

    #[test]
    fn undo_reports_what_keeps_it_from_reaching_pods() {
        let paused = json!({"spec": {"updateStrategy": {"paused": true}}});
        let note = history(paused).undo(None).expect("a change").note;
        assert!(note.is_some_and(|it| it.contains("kubectl game resume scs/log")));
        let pinned =
            json!({"spec": {"injectionStrategy": {"revision": {"revisionName": "log-3"}}}});
        let note = history(pinned).undo(None).expect("a change").note;
        assert!(note.is_some_and(|it| it.contains("new pods still get revision log-3")));
    }
}
