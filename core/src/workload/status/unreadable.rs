//! The condition of an object that cannot be decoded, for example because another version of the operator stored a
//! value that this one does not know. The object's conditions are handled as JSON, so that no other condition is lost,
//! whatever it contains.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{ConditionType, Reason};
use crate::kstatus::is_of_kstatus;
use crate::observed::time::rounded_down;
use crate::text::truncate;

/// The longest reason that is shown, in characters: it may quote a value of any length.
const MAX_WHY: usize = 500;

/// The conditions of an object, with Ready=False and the reason why it cannot be decoded, and Stalled for kstatus. None
/// if the old conditions already contain that.
pub fn unreadable_conditions(
    old: &[Value],
    why: &str,
    generation: i64,
    now: Timestamp,
) -> Option<Vec<Value>> {
    let now = rounded_down(now);
    let condition = |type_: ConditionType, status: &str| {
        let mut old = old.iter();
        let same = old.find(|it| it["type"] == type_.as_str() && it["status"] == status);
        let since = same.and_then(|it| it["lastTransitionTime"].as_str());
        json!({
            "type": type_.as_str(),
            "status": status,
            "reason": Reason::Unreadable.to_string(),
            "message": unreadable_message(why),
            "observedGeneration": generation,
            "lastTransitionTime": since.map_or_else(|| now.to_string(), str::to_owned),
        })
    };
    let replaced =
        [condition(ConditionType::Ready, "False"), condition(ConditionType::Stalled, "True")];
    if replaced.iter().all(|it| old.contains(it)) {
        return None;
    }
    let is_replaced = |it: &Value| {
        let type_ = it["type"].as_str().unwrap_or_default();
        type_ == ConditionType::Ready.as_str() || is_of_kstatus(type_)
    };
    let kept = old.iter().filter(|it| !is_replaced(it)).cloned();
    Some(replaced.iter().cloned().chain(kept).collect())
}

/// The message about an object that cannot be decoded.
pub fn unreadable_message(why: &str) -> String {
    let why = truncate(why, MAX_WHY);
    format!("the operator cannot read this object and ignores it: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn ready_becomes_false_and_all_else_is_kept() {
        let strange = json!({"type": "Strange", "extra": {"a": [1]}});
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "then"});
        let old = [ready, strange.clone()];
        let new = unreadable_conditions(&old, "unknown variant", 7, at(100)).expect("a change");
        assert_eq!(new.len(), 3);
        assert_eq!(new[2], strange);
        assert_eq!((&new[1]["type"], &new[1]["status"]), (&json!("Stalled"), &json!("True")));
        let ready = &new[0];
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Unreadable")));
        assert_eq!(ready["lastTransitionTime"], "1970-01-01T00:01:40Z");
        assert_eq!(ready["observedGeneration"], 7);
        assert!(ready["message"].as_str().is_some_and(|it| it.ends_with(": unknown variant")));
        assert_eq!(unreadable_conditions(&new, "unknown variant", 7, at(200)), None);
        let other = unreadable_conditions(&new, "another", 8, at(200)).expect("a change");
        assert_eq!(other[0]["lastTransitionTime"], "1970-01-01T00:01:40Z");
    }

    #[test]
    fn a_long_reason_is_cut() {
        let why = format!("invalid type: string {:?}", "x".repeat(1 << 20));
        let message = unreadable_message(&why);
        assert!(message.len() < 600 && message.contains("invalid type: string"), "{message}");
    }

    #[test]
    fn an_object_without_conditions_gets_its_first_condition() {
        let new = unreadable_conditions(&[], "why", 1, at(0)).expect("a change");
        assert_eq!(new.len(), 2);
    }
}
