//! Clocks that jump, or that differ between kubelets and successive leaders.

use serde_json::json;

use super::story::story;
use crate::observed::Gate;

/// Added to a clock, these seconds set it back by two hours.
const BACK: i64 = -7_200;

#[test]
fn a_clock_behind_that_of_the_kubelet_exempts_no_pod_from_the_budget() {
    let mut story = story(5, json!({"updateStrategy": {"maxUnavailable": 2}}));
    story.settle().wait(BACK);
    story.image("v2");
    while story.reconcile() {
        let ready = story.pods().iter().filter(|pod| pod.is_ready()).count();
        assert!(ready >= 3, "{ready}");
    }
    assert_eq!(story.images(), "v2 v2 v2 v2 v2");
}

#[test]
fn an_update_whose_gate_closed_in_the_future_waits_for_only_one_grace_period() {
    let grace = json!({"gracePeriodSeconds": 30});
    let strategy = json!({"type": "InplaceUpdate", "inPlaceUpdateStrategy": grace});
    let mut story = story(1, json!({"updateStrategy": strategy}));
    story.settle();
    story.image("v2").settle().wait(BACK).settle();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    story.wait(30).settle();
    assert_eq!(story.images(), "v1");
    story.wait(1).settle();
    assert_eq!(story.images(), "v2");
}

#[test]
fn a_refusal_dated_in_the_future_is_checked_again() {
    let mut story = story(3, json!({}));
    story.settle();
    story.dry_run_refusal = Some("exceeded quota".to_owned());
    story.image("v2").settle();
    story.dry_run_refusal = None;
    story.wait(BACK).settle();
    assert_eq!(story.images(), "v2 v2 v2");
}
