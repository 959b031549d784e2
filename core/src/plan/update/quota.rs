//! A full quota refuses an additional pod, but not one that replaces another.
//!
//! A dry run cannot distinguish the two, because the old pod still counts. The refusal contains the
//! amounts requested, used and limited, so the answer can be computed here.

use serde_json::Value;

use crate::plan::quantity;

/// Whether a quota that refused a pod would accept it if a pod of the old template were deleted.
pub fn has_room_for_a_replacement(refusal: &str, old: &Value) -> bool {
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
                Some(used - freed(old, resource) + requested <= limited)
            };
            fits().unwrap_or(false)
        })
}

/// Parses `pods=1,requests.cpu=500m`, up to the next part of the message.
fn amounts(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let end = list.find(", ").unwrap_or(list.len());
    list[..end]
        .split(',')
        .filter_map(|item| item.trim().split_once('='))
}

fn amount<'a>(list: &'a str, resource: &str) -> Option<&'a str> {
    amounts(list)
        .find(|(name, _)| *name == resource)
        .map(|(_, amount)| amount)
}

/// The amount of a resource that the deletion of a pod of this template frees, in thousandths of its unit.
fn freed(template: &Value, resource: &str) -> i128 {
    let (kind, name) = match resource {
        "pods" | "count/pods" => return 1000,
        "cpu" | "memory" => ("requests", resource),
        other => other.split_once('.').unwrap_or((other, "")),
    };
    let containers = template
        .pointer("/spec/containers")
        .and_then(Value::as_array);
    let amounts = containers.into_iter().flatten().filter_map(|container| {
        let resources = container.get("resources")?;
        // A container without a request requests its limit.
        let limit = || {
            resources
                .get("limits")?
                .get(name)
                .filter(|_| kind == "requests")
        };
        let amount = resources
            .get(kind)
            .and_then(|it| it.get(name))
            .or_else(limit)?;
        quantity::milli(&quantity::text(amount))
    });
    amounts.sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replacement_fits_where_an_additional_pod_does_not() {
        let old = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}});
        let refusal =
            |what: &str| format!("pods \"game-abcde\" is forbidden: exceeded quota: team, {what}");
        for (what, fits) in [
            ("requested: pods=1, used: pods=3, limited: pods=3", true),
            (
                "requested: pods=1,requests.cpu=1, used: pods=3,requests.cpu=3, limited: pods=3,requests.cpu=3",
                true,
            ),
            (
                "requested: requests.cpu=10, used: requests.cpu=3, limited: requests.cpu=4",
                false,
            ),
            (
                "requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4",
                true,
            ),
            (
                "requested: memory=2Gi, used: memory=3Gi, limited: memory=3Gi",
                false,
            ),
            ("requested: pods=1, used: pods=9, limited: pods=3", false),
            ("requested: nonsense", false),
        ] {
            assert_eq!(
                has_room_for_a_replacement(&refusal(what), &old),
                fits,
                "{what}"
            );
        }
        assert!(!has_room_for_a_replacement(
            "spec.containers[0].imag: unknown field",
            &old
        ));
    }
}
