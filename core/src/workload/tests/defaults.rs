//! Templates that differ only in what the API server would set itself: no update starts, whichever of them was stored.

use std::sync::Arc;

use serde_json::{Value, json};

use super::story::{Story, story};
use crate::api::JsonText;

/// The spec of a template: as short as possible, and with defaults written out.
fn written_short_and_long() -> [Value; 2] {
    let spec = |container: Value, mut spec: Value| {
        spec["containers"] = json!([container]);
        json!({"template": {"spec": spec}})
    };
    let short = spec(
        json!({
            "name": "game", "image": "game:v1",
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "readinessProbe": {"httpGet": {"port": 80}},
        }),
        json!({"volumes": [{"name": "maps", "configMap": {"name": "maps"}}]}),
    );
    let field = json!({"apiVersion": "v1", "fieldPath": "status.podIP"});
    let long = spec(
        json!({
            "name": "game", "image": "game:v1", "imagePullPolicy": "IfNotPresent", "tty": false,
            "env": [{"name": "IP", "valueFrom": {"fieldRef": field}}],
            "readinessProbe": {"httpGet": {"port": 80, "scheme": "HTTP"}, "periodSeconds": 10},
        }),
        json!({
            "volumes": [{"name": "maps", "configMap": {"name": "maps", "defaultMode": 420}}],
            "tolerations": null, "enableServiceLinks": true,
        }),
    );
    [short, long]
}

fn pods_and_revisions(story: &Story) -> (Vec<String>, Vec<String>) {
    let pods = story.world.pods.iter().map(|it| format!("{} {}", it.uid, it.generation));
    (pods.collect(), story.world.revisions.iter().map(|it| it.name.clone()).collect())
}

#[test]
fn writing_out_a_default_or_leaving_it_out_starts_no_update() {
    for type_ in ["RollingUpdate", "InplaceUpdate", "HotPatchUpdate", "OnDelete"] {
        let [short, long] = written_short_and_long();
        for (before, after) in [(&short, &long), (&long, &short)] {
            let mut story = story(2, json!({"updateStrategy": {"type": type_}}));
            story.user(before.clone()).settle();
            let settled = pods_and_revisions(&story);
            story.user(after.clone()).settle();
            assert_eq!(pods_and_revisions(&story), settled, "{type_}");
        }
    }
}

/// An earlier version knew fewer defaults, and other names followed from its canonical form.
#[test]
fn a_revision_of_an_earlier_version_stays_the_revision_of_its_template() {
    let [short, long] = written_short_and_long();
    for (current, stored) in [(&short, &long), (&long, &short)] {
        let mut story = story(2, json!({}));
        story.user(current.clone()).settle();
        let revision = Arc::make_mut(&mut story.world.revisions[0]);
        let mut template = stored["template"].clone();
        template["metadata"] = json!({"labels": {"app": "game"}, "creationTimestamp": null});
        revision.template = JsonText::from(&template);
        assert!(!story.reconcile(), "the new version writes something");
    }
}

#[test]
fn nulls_mean_absent_fields() {
    let mut story = story(1, json!({}));
    story.settle();
    let settled = pods_and_revisions(&story);
    let container = json!({"name": "game", "image": "game:v1", "env": null, "resources": null});
    let spec = json!({
        "containers": [container], "initContainers": null, "volumes": null, "nodeSelector": null,
        "readinessGates": null, "priorityClassName": null,
    });
    let metadata = json!({"labels": {"app": "game"}, "annotations": null, "name": null});
    story.user(json!({"template": {"metadata": metadata, "spec": spec}})).settle();
    assert_eq!(pods_and_revisions(&story), settled);
    let updated = json!({"name": "game", "image": "game:v2", "env": null});
    story.user(json!({"template": {"spec": {"containers": [updated]}}})).settle();
    let recorded = story.world.revisions.iter().map(|it| it.template.text().to_owned());
    assert!(recorded.into_iter().all(|it| !it.contains("null")), "a revision records a null");
}
