//! Whether two volumes are the same, even if only one of them has the defaults that the API server sets.

use serde_json::Value;

use crate::revision::canonical_volume;

/// Whether two volumes differ at most in defaults. The API server fills them in before it calls the webhook, so the
/// volumes of a pod have them, but those of a set do not.
pub fn is_same_volume(one: &Value, other: &Value) -> bool {
    canonical_volume(one) == canonical_volume(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_that_differ_only_in_defaults_are_the_same() {
        let pod_ip = json!({"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}});
        let stored_pod_ip =
            json!({"path": "ip", "fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}});
        let cpu = json!({"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}});
        let stored_cpu =
            json!({"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}});
        for (written, stored, differing) in [
            (json!({}), json!({"emptyDir": {}}), json!({"emptyDir": {"medium": "Memory"}})),
            (
                json!({"configMap": {"name": "a"}}),
                json!({"configMap": {"name": "a", "defaultMode": 420}}),
                json!({"configMap": {"name": "a", "defaultMode": 256}}),
            ),
            (
                json!({"secret": {"secretName": "a", "defaultMode": null}}),
                json!({"secret": {"secretName": "a", "defaultMode": 420}}),
                json!({"secret": {"secretName": "b", "defaultMode": 420}}),
            ),
            (
                json!({"hostPath": {"path": "/logs"}}),
                json!({"hostPath": {"path": "/logs", "type": ""}}),
                json!({"hostPath": {"path": "/logs", "type": "Directory"}}),
            ),
            (
                json!({"downwardAPI": {"items": [pod_ip, cpu]}}),
                json!({"downwardAPI": {"items": [stored_pod_ip, stored_cpu], "defaultMode": 420}}),
                json!({"downwardAPI": {"items": [stored_cpu, stored_pod_ip], "defaultMode": 420}}),
            ),
            (
                json!({"projected": {"sources": [
                    {"serviceAccountToken": {"path": "token"}},
                    {"downwardAPI": {"items": [pod_ip]}},
                    {"configMap": {"name": "a"}},
                ]}}),
                json!({"projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                    {"downwardAPI": {"items": [stored_pod_ip]}},
                    {"configMap": {"name": "a"}},
                ]}}),
                json!({"projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                    {"downwardAPI": {"items": [stored_pod_ip]}},
                    {"configMap": {"name": "a"}},
                ]}}),
            ),
        ] {
            let [written, stored, differing] = [written, stored, differing].map(|mut it| {
                it["name"] = json!("data");
                it
            });
            assert!(is_same_volume(&written, &stored), "{written}");
            assert!(is_same_volume(&stored, &written), "{written}");
            assert!(!is_same_volume(&written, &differing), "{differing}");
            assert!(!is_same_volume(&stored, &differing), "{differing}");
        }
        let renamed = json!({"name": "logs", "emptyDir": {}});
        assert!(!is_same_volume(&renamed, &json!({"name": "data", "emptyDir": {}})));
    }
}
