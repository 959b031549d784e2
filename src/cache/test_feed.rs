//! Feeds a cache by hand, for tests.

use serde_json::json;

use super::{Cache, Interner, Sight, slim};

/// Shows the cache a list with exactly these pods, which nobody controls.
pub fn pods(cache: &Cache, version: u64, names: &[&str]) {
    let mut interner = Interner::default();
    let pods = names.iter().filter_map(|name| {
        let pod = json!({"metadata": {
            "namespace": "games",
            "name": name,
            "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(),
        }});
        let pod = serde_json::from_value(pod).expect("a pod");
        slim(None, Sight::Listed, pod, &mut interner)
    });
    cache.pods.show(version, pods.collect());
}
