//! A full quota refuses an additional pod, but not one that replaces another.
//!
//! A dry run cannot distinguish the two, because the old pod still counts. The refusal contains the
//! amounts requested, used and limited, so the outcome can be computed here.

use serde_json::Value;

use crate::observed::Pod;
use crate::observed::quantity;

/// What counts against a quota as long as a pod exists.
pub(super) struct Usage<'a> {
    /// The resources of each container that keeps running, including native sidecars.
    running: Vec<Value>,
    /// The init containers. Those that end need their resources only before the containers start.
    init: &'a [Value],
    /// The resources of the pod as a whole, which replace those of its containers.
    pod: Option<&'a Value>,
    /// What its RuntimeClass adds.
    overhead: Value,
}

impl<'a> Usage<'a> {
    /// The usage of a pod. Resources of containers that keep running, and the overhead, are read from the pod, because
    /// sidecars, resizes and defaults of the namespace are not in its template. The others are known only from the
    /// template.
    pub(super) fn of_pod(pod: &Pod, template: Option<&'a Value>) -> Self {
        let containers = pod.containers.iter();
        let resources = containers.filter_map(|it| serde_json::from_str(&it.resources).ok());
        let overhead = pod.overhead.as_deref().and_then(|it| serde_json::from_str(it).ok());
        Self {
            running: resources.collect(),
            init: template.map_or(&[], |it| items(it, "initContainers")),
            pod: template.and_then(|it| it.pointer("/spec/resources")),
            overhead: overhead.unwrap_or_default(),
        }
    }

    /// The amount of a resource, in thousandths of its unit, as Kubernetes counts it: the amount for the whole pod, or
    /// else the sum over the containers that keep running, or the most that is needed while init containers run,
    /// whichever is higher; and the overhead, with which a limit counts only if there is one.
    fn amount(&self, resource: &str) -> i128 {
        let (kind, name) = match resource {
            "pods" | "count/pods" => return 1000,
            "cpu" | "memory" => ("requests", resource),
            other => other.split_once('.').unwrap_or((other, "")),
        };
        let running = self.running.iter().map(|it| amount_of(it, kind, name));
        let mut native = 0;
        let mut highest = 0;
        for container in self.init {
            let resources = container.get("resources");
            let amount = resources.map_or(0, |it| amount_of(it, kind, name));
            highest = highest.max(native + amount);
            if keeps_running(container) {
                native += amount;
            }
        }
        let amount = match self.pod.map(|it| amount_of(it, kind, name)) {
            Some(whole) if whole > 0 => whole,
            _ => highest.max(running.sum()),
        };
        let overhead = self.overhead.get(name).map(quantity::text);
        let overhead = overhead.and_then(|it| quantity::milli(&it)).unwrap_or(0);
        let counts = kind == "requests" || (kind == "limits" && amount > 0);
        amount + if counts { overhead } else { 0 }
    }
}

/// Whether the same quotas count the pods of two templates, as far as the templates decide that: quotas may be for one
/// PriorityClass, or for pods with a deadline.
pub(super) fn have_same_quota_scopes(one: &Value, other: &Value) -> bool {
    let scopes = |template: &Value| {
        let spec = &template["spec"];
        (spec["priorityClassName"].clone(), spec["activeDeadlineSeconds"].is_null())
    };
    scopes(one) == scopes(other)
}

/// Whether a quota that refused a pod would accept it if a pod with this usage were deleted.
pub(super) fn has_room_for_a_replacement(refusal: &str, old: &Usage) -> bool {
    let Some((_, exceeded)) = refusal.split_once("exceeded quota: ") else {
        return false;
    };
    let part = |name: &str| exceeded.split_once(name).map_or("", |(_, rest)| rest);
    let (requested, used, limited) = (part(", requested: "), part(", used: "), part(", limited: "));
    let amounts: Vec<(&str, &str)> = amounts(requested).collect();
    !amounts.is_empty()
        && amounts.into_iter().all(|(resource, requested)| {
            let fits = || -> Option<bool> {
                let used = quantity::milli(amount(used, resource)?)?;
                let limited = quantity::milli(amount(limited, resource)?)?;
                let requested = quantity::milli(requested)?;
                Some(used - old.amount(resource) + requested <= limited)
            };
            fits().unwrap_or(false)
        })
}

/// Parses `pods=1,requests.cpu=500m`, up to the next part of the message.
fn amounts(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let end = list.find(", ").unwrap_or(list.len());
    list[..end].split(',').filter_map(|item| item.trim().split_once('='))
}

fn amount<'a>(list: &'a str, resource: &str) -> Option<&'a str> {
    amounts(list).find(|(name, _)| *name == resource).map(|(_, amount)| amount)
}

/// A container's request or limit for a resource, in thousandths of its unit.
fn amount_of(resources: &Value, kind: &str, name: &str) -> i128 {
    let quantity_of = |kind: &str| resources.get(kind).and_then(|it| it.get(name));
    // A container without a request requests its limit.
    let limit = || quantity_of("limits").filter(|_| kind == "requests");
    let amount = quantity_of(kind).or_else(limit).map(quantity::text);
    amount.and_then(|it| quantity::milli(&it)).unwrap_or(0)
}

/// Whether an init container is a native sidecar.
fn keeps_running(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// A list of containers in a pod or a template.
fn items<'v>(pod: &'v Value, list: &str) -> &'v [Value] {
    let items = pod.get("spec").and_then(|spec| spec.get(list));
    items.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replacement_fits_where_an_additional_pod_does_not() {
        let old = Usage {
            running: vec![json!({"requests": {"cpu": "1", "memory": "1Gi"}})],
            init: &[],
            pod: None,
            overhead: Value::Null,
        };
        let refusal = |amounts: &str| {
            format!("pods \"game-abcde\" is forbidden: exceeded quota: team, {amounts}")
        };
        for (amounts, fits) in [
            ("requested: pods=1, used: pods=3, limited: pods=3", true),
            (
                "requested: pods=1,requests.cpu=1, used: pods=3,requests.cpu=3, limited: pods=3,requests.cpu=3",
                true,
            ),
            ("requested: requests.cpu=10, used: requests.cpu=3, limited: requests.cpu=4", false),
            ("requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4", true),
            ("requested: memory=2Gi, used: memory=3Gi, limited: memory=3Gi", false),
            ("requested: pods=1, used: pods=9, limited: pods=3", false),
            ("requested: nonsense", false),
        ] {
            assert_eq!(has_room_for_a_replacement(&refusal(amounts), &old), fits, "{amounts}");
        }
        assert!(!has_room_for_a_replacement("spec.containers[0].imag: unknown field", &old));
    }

    #[test]
    fn init_containers_count_as_in_kubernetes() {
        let container = |cpu: &str, native: bool| {
            let policy = native.then_some("Always");
            json!({"restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}})
        };
        let game = container("1", false);
        for (init, amount) in [
            (vec![], 1000),
            (vec![container("100m", true)], 1100),
            (vec![container("500m", false)], 1000),
            (vec![container("3", false)], 3000),
            (vec![container("3", false), container("1", true)], 3000),
            (vec![container("1", true), container("3", false)], 4000),
        ] {
            let native = init.iter().filter(|it| keeps_running(it));
            let running = native.chain([&game]).map(|it| it["resources"].clone());
            let usage =
                Usage { running: running.collect(), init: &init, pod: None, overhead: Value::Null };
            assert_eq!(usage.amount("requests.cpu"), amount, "{init:?}");
        }
    }

    #[test]
    fn resources_of_the_whole_pod_and_its_overhead_count_as_in_kubernetes() {
        let whole = json!({"requests": {"cpu": "2"}});
        let usage = |pod| Usage {
            running: vec![json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}})],
            init: &[],
            pod,
            overhead: json!({"cpu": "250m", "memory": "1Gi"}),
        };
        for (resource, pod, amount) in [
            ("requests.cpu", None, 1250),
            ("requests.cpu", Some(&whole), 2250),
            ("cpu", Some(&whole), 2250),
            ("limits.memory", None, (2 << 30) * 1000),
            // Overhead is no limit of its own.
            ("limits.cpu", None, 0),
            ("pods", None, 1000),
        ] {
            assert_eq!(usage(pod).amount(resource), amount, "{resource}");
        }
    }
}
