//! Templates with the same meaning, and templates that differ. That the table has all defaults of the API server is
//! tested on a real one (`e2e/tests/defaults.rs`).

use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "game", "image": "game:v1"});
    let (all, more) = (container.as_object_mut(), fields.as_object());
    all.expect("an object").extend(more.expect("an object").clone());
    pod(json!({"containers": [container]}))
}

#[test]
fn templates_with_the_same_meaning_have_the_same_canonical_form() {
    let short = json!({"spec": {"containers": [
        {"name": "game", "image": "game:v1", "resources": {"requests": {"cpu": 0.5}}}]}});
    let long = json!({
        "metadata": {"creationTimestamp": null, "annotations": {}},
        "spec": {
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "securityContext": {},
            "containers": [{
                "resources": {"requests": {"cpu": "500m"}}, "image": "game:v1", "name": "game",
                "env": [], "terminationMessagePolicy": "File",
            }],
        },
    });
    assert_eq!(canonical(&short), canonical(&long));
    assert_eq!(canonical(&canonical(&long)), canonical(&long));
}

#[test]
fn a_default_means_the_same_whether_it_is_written_out_or_not() {
    let probe = |more: Value| {
        let mut probe = json!({"httpGet": {"port": 80}});
        probe.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        container(json!({"readinessProbe": probe}))
    };
    let volume = |source: Value| pod(json!({"volumes": [{"name": "data", "configMap": source}]}));
    let port = |port: Value| pod(json!({"hostNetwork": true, "containers": [{"ports": [port]}]}));
    let account = |spec: Value| pod(spec);
    for (written, absent) in [
        (container(json!({"imagePullPolicy": "IfNotPresent"})), container(json!({}))),
        (
            container(json!({"image": "game", "imagePullPolicy": "Always"})),
            container(json!({"image": "game"})),
        ),
        (probe(json!({"periodSeconds": 10, "initialDelaySeconds": 0})), probe(json!({}))),
        (probe(json!({"httpGet": {"port": 80, "scheme": "HTTP", "path": "/"}})), probe(json!({}))),
        (volume(json!({"name": "a", "defaultMode": 420})), volume(json!({"name": "a"}))),
        (
            pod(json!({"volumes": [{"name": "data", "emptyDir": {"medium": ""}}]})),
            pod(json!({"volumes": [{"name": "data"}]})),
        ),
        (
            container(json!({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1000m"}}})),
            container(json!({"resources": {"limits": {"cpu": "1"}}})),
        ),
        (
            pod(json!({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": 1}}})),
            pod(json!({"resources": {"limits": {"cpu": "1"}}})),
        ),
        (
            port(json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})),
            port(json!({"containerPort": 80})),
        ),
        (
            account(json!({"serviceAccount": "game", "serviceAccountName": "game"})),
            account(json!({"serviceAccountName": "game"})),
        ),
        (account(json!({"serviceAccountName": "default"})), account(json!({}))),
        (
            container(json!({"env": [{"name": "A", "value": ""}], "tty": false})),
            container(json!({"env": [{"name": "A"}]})),
        ),
        (
            pod(json!({"tolerations": null, "nodeSelector": {}, "hostNetwork": false})),
            pod(json!({})),
        ),
    ] {
        assert_eq!(canonical(&written), canonical(&absent), "{written}");
    }
}

#[test]
fn fields_with_a_meaning_are_kept() {
    let grace = json!({"spec": {"terminationGracePeriodSeconds": 60}});
    let volume =
        |source: &str| pod(json!({"volumes": [{"name": "data", source: {"name": "data"}}]}));
    for (one, other) in [
        (grace, json!({"spec": {}})),
        (volume("configMap"), volume("secret")),
        (container(json!({"securityContext": {"privileged": false}})), container(json!({}))),
        (
            container(json!({"image": "game", "imagePullPolicy": "IfNotPresent"})),
            container(json!({"image": "game"})),
        ),
        // The first of two requests has another default: what the container requests.
        (
            pod(json!({
                "resources": {"limits": {"cpu": 2}, "requests": {"cpu": 2}},
                "containers": [{"resources": {"requests": {"cpu": 1}}}],
            })),
            pod(json!({
                "resources": {"limits": {"cpu": 2}},
                "containers": [{"resources": {"requests": {"cpu": 1}}}],
            })),
        ),
        (
            pod(json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]})),
            pod(json!({"containers": [{"ports": [{"containerPort": 80}]}]})),
        ),
        // Keys of maps are data.
        (
            json!({"metadata": {"labels": {"sizeLimit": "1Gi"}}}),
            json!({"metadata": {"labels": {"sizeLimit": "1024Mi"}}}),
        ),
        (json!({"metadata": {"labels": {"empty": ""}}}), json!({"metadata": {}})),
    ] {
        assert_ne!(canonical(&one), canonical(&other), "{one}");
    }
}

/// The canonical form of a template with few fields is part of the names of revisions, which hooks and users refer to.
#[test]
fn the_canonical_form_of_a_short_template_is_the_template() {
    let short = json!({
        "metadata": {"labels": {"app": "game"}},
        "spec": {
            "containers": [{
                "name": "game", "image": "game:v1",
                "resources": {"limits": {"cpu": "1000m", "memory": "1073741824000m"}},
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    assert_eq!(canonical(&short), short);
}

#[test]
fn a_deep_template_is_compared_without_growing() {
    let mut deep = json!({"end": 1});
    for _ in 0..100 {
        deep = json!({"next": deep, "null": null});
    }
    let mut shallow = canonical(&pod(json!({"future": deep})))["spec"]["future"].clone();
    for _ in 0..100 {
        shallow = shallow["next"].take();
    }
    assert_eq!(shallow, json!({"end": 1}));
}
