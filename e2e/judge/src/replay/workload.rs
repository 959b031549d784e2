//! One version of a workload, and the limits that follow from it.

use std::sync::Arc;

use jiff::{SignedDuration, Span, Timestamp};
use serde_json::Value;

use crate::names;
use crate::object::{annotation, text};

/// A version of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// When clients could first read it.
    pub(crate) at: Timestamp,
    /// The whole object.
    pub(crate) object: Arc<Value>,
    /// spec.replicas when the rollout reached its current step.
    pub(crate) replicas_at_step: i64,
}

impl Version {
    /// A version for checks that do not depend on steps.
    pub(crate) fn of(object: &Arc<Value>, at: Timestamp) -> Self {
        Self { at, object: object.clone(), replicas_at_step: 0 }
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.object.pointer(pointer)?.as_i64()
    }

    /// spec.replicas.
    pub(crate) fn replicas(&self) -> i64 {
        self.number("/spec/replicas").unwrap_or(1)
    }

    /// spec.minReadySeconds.
    pub(crate) fn min_ready(&self) -> SignedDuration {
        SignedDuration::from_secs(self.number("/spec/minReadySeconds").unwrap_or(0))
    }

    /// spec.updateStrategy.type.
    pub(crate) fn strategy(&self) -> &str {
        text(&self.object, "/spec/updateStrategy/type")
    }

    /// Whether the containers of a pod are updated in order.
    pub(crate) fn updates_in_order(&self) -> bool {
        matches!(self.container_order(), "OrderedReady" | "OrderedUpdated")
    }

    /// Whether a container of a pod waits until the one before it is ready.
    pub(crate) fn awaits_readiness(&self) -> bool {
        self.container_order() == "OrderedReady"
    }

    fn container_order(&self) -> &str {
        let policy = "/spec/updateStrategy/inPlaceUpdateStrategy/policy";
        text(&self.object, policy)
    }

    /// spec.updateStrategy.paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.object.pointer("/spec/updateStrategy/paused") == Some(&Value::Bool(true))
    }

    /// Whether the hook of the canary step is to be run again.
    pub(crate) fn retries_step(&self) -> bool {
        let retry = annotation(&self.object, names::RETRY);
        let retry = retry.and_then(|it| serde_json::from_str::<Value>(it).ok());
        let points = retry.as_ref().and_then(|it| it["points"].as_array());
        points.is_some_and(|it| it.iter().any(|point| point == "Step"))
    }

    /// Whether an annotation shows that the operator itself has set the pause.
    pub(crate) fn has_pause_annotation(&self) -> bool {
        annotation(&self.object, names::PAUSE).is_some()
    }

    /// Whether that annotation says that the pause has ended.
    pub(crate) fn has_ended_pause(&self) -> bool {
        let pause = annotation(&self.object, names::PAUSE);
        let pause = pause.and_then(|json| serde_json::from_str::<Value>(json).ok());
        pause.is_some_and(|pause| pause["over"] == true)
    }

    /// Whether a full promotion lets this rollout skip its steps.
    pub(crate) fn is_promoted(&self) -> bool {
        let promotion = annotation(&self.object, names::PROMOTE);
        let promotion = promotion.and_then(|json| serde_json::from_str::<Value>(json).ok());
        promotion.is_some_and(|promotion| {
            let promoted = (text(&promotion, "/revision"), text(&promotion, "/stepHash"));
            promoted == self.rollout()
        })
    }

    /// Whether spec.scaleStrategy.podsToDelete names a pod.
    pub(crate) fn is_in_pods_to_delete(&self, pod: &str) -> bool {
        let list = self.object.pointer("/spec/scaleStrategy/podsToDelete");
        let list = list.and_then(Value::as_array);
        list.is_some_and(|names| names.iter().any(|name| name.as_str() == Some(pod)))
    }

    /// status.updateRevision.
    pub(crate) fn update_revision(&self) -> &str {
        text(&self.object, "/status/updateRevision")
    }

    /// status.canary.revision.
    pub(crate) fn stable_revision(&self) -> &str {
        text(&self.object, "/status/canary/revision")
    }

    /// status.currentStepIndex.
    pub(crate) fn step_index(&self) -> usize {
        let index = self.number("/status/currentStepIndex").unwrap_or(0);
        usize::try_from(index).unwrap_or(0)
    }

    /// spec.updateStrategy.canary.steps.
    pub(crate) fn steps(&self) -> &[Value] {
        let steps = self.object.pointer("/spec/updateStrategy/canary/steps");
        steps.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// What identifies this rollout: update revision and step list.
    pub(crate) fn rollout(&self) -> (&str, &str) {
        (self.update_revision(), text(&self.object, "/status/currentStepHash"))
    }

    /// Whether a rollout is in progress.
    pub(crate) fn is_rolling(&self) -> bool {
        let stable = self.stable_revision();
        !stable.is_empty() && stable != self.update_revision()
    }

    /// A field of updateStrategy. In a GameStatefulSet it may also be in rollingUpdate.
    fn limit(&self, name: &str) -> Option<&Value> {
        let outer = self.object.pointer("/spec/updateStrategy");
        let outer = outer.and_then(|strategy| strategy.get(name));
        let inner = self.object.pointer("/spec/updateStrategy/rollingUpdate");
        outer.or_else(|| inner.and_then(|rolling| rolling.get(name)))
    }

    /// maxSurge in pods.
    pub(crate) fn max_surge(&self) -> i64 {
        let update = text(&self.object, "/spec/updateStrategy/type");
        if matches!(update, "HotPatchUpdate" | "OnDelete") {
            return 0;
        }
        resolve(self.limit("maxSurge"), self.replicas(), Round::Up).unwrap_or(0)
    }

    /// maxUnavailable in pods.
    pub(crate) fn max_unavailable(&self) -> i64 {
        let surge = self.max_surge();
        let round = if surge > 0 { Round::Down } else { Round::Up };
        let default = Value::from(match (self.is_stateful_set(), self.is_ordered()) {
            (false, _) => "20%",
            (true, false) => "25%",
            (true, true) => "1",
        });
        let limit = self.limit("maxUnavailable").unwrap_or(&default);
        let pods = resolve(Some(limit), self.replicas(), round).unwrap_or(0);
        if pods == 0 && surge == 0 { 1 } else { pods }
    }

    /// spec.scaleStrategy.createBatch in pods. None if it is not set, or if pods are created one at a time.
    pub(crate) fn create_batch(&self) -> Option<i64> {
        let batch = self.object.pointer("/spec/scaleStrategy/createBatch");
        let pods = resolve(batch, self.replicas(), Round::Up)?.max(1);
        (!self.is_ordered()).then_some(pods)
    }

    /// Whether it is a GameStatefulSet, whose pods have ordinals.
    pub(crate) fn is_stateful_set(&self) -> bool {
        text(&self.object, "/kind") == "GameStatefulSet"
    }

    /// Whether its pods are created and deleted one at a time.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_stateful_set() && text(&self.object, "/spec/podManagementPolicy") != "Parallel"
    }

    /// spec.ordinals.start.
    pub(crate) fn first_ordinal(&self) -> i64 {
        self.number("/spec/ordinals/start").unwrap_or(0)
    }

    /// The ordinals of its pods, without surge pods. Reserved ordinals are skipped, and do not count as replicas.
    pub(crate) fn ordinals(&self) -> Vec<i64> {
        self.unreserved_ordinals(self.replicas())
    }

    /// The first `pods` ordinals that are not reserved.
    fn unreserved_ordinals(&self, pods: i64) -> Vec<i64> {
        let ordinals = (self.first_ordinal()..).filter(|ordinal| !self.is_reserved(*ordinal));
        ordinals.take(usize::try_from(pods).unwrap_or(0)).collect()
    }

    /// Whether an ordinal is among the first `pods` ordinals that are not reserved.
    pub(crate) fn is_among(&self, ordinal: i64, pods: i64) -> bool {
        let first = self.first_ordinal();
        let left_out = self.reserved().filter(|it| (first..ordinal).contains(it));
        let position = ordinal - first - left_out.count() as i64;
        (0..pods).contains(&position) && !self.is_reserved(ordinal)
    }

    /// Whether spec.reserveOrders contains an ordinal.
    pub(crate) fn is_reserved(&self, ordinal: i64) -> bool {
        self.reserved().any(|it| it == ordinal)
    }

    fn reserved(&self) -> impl Iterator<Item = i64> {
        let reserved = self.object.pointer("/spec/reserveOrders");
        let reserved = reserved.and_then(Value::as_array).into_iter();
        reserved.flatten().filter_map(Value::as_i64)
    }

    /// The ordinal in the name of one of its pods.
    pub(crate) fn ordinal(&self, pod: &str) -> Option<i64> {
        let name = text(&self.object, "/metadata/name");
        let digits = pod.strip_prefix(name)?.strip_prefix('-')?;
        digits.parse().ok()
    }

    /// Whether the ordinal of a pod of a GameStatefulSet is one of [`Version::ordinals`]. A surge pod's is
    /// not.
    pub(crate) fn is_regular(&self, pod: &str) -> bool {
        let ordinal = self.ordinal(pod);
        ordinal.is_some_and(|ordinal| self.is_among(ordinal, self.replicas()))
    }

    /// Whether scale-in also deletes a pod's PersistentVolumeClaims.
    pub(crate) fn deletes_claims_when_scaled(&self) -> bool {
        let policy = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled";
        text(&self.object, policy) == "Delete"
    }

    /// The lowest ordinal whose pod may have the update revision. None if no pod may be updated. Percentages are
    /// rounded as in [`Version::max_updated`].
    pub(crate) fn first_to_update(&self) -> Option<i64> {
        if !self.is_rolling() {
            return Some(i64::MIN);
        }
        let partition = self.partition()?;
        let replicas = self.replicas();
        let kept = replicas - self.outside_partition(partition.as_ref(), replicas);
        let last = self.unreserved_ordinals(kept).pop();
        // The next ordinal after those that are kept.
        Some(last.map_or(i64::MIN, |last| last + 1))
    }

    /// How many pods may have the update revision.
    ///
    /// The rounding of a partition's percentage is not documented, so the larger number is allowed.
    pub(crate) fn max_updated(&self) -> i64 {
        if !self.is_rolling() {
            return i64::MAX;
        }
        let Some(partition) = self.partition() else {
            return 0;
        };
        self.outside_partition(partition.as_ref(), self.replicas_capped_by_step())
    }

    /// spec.replicas, but during a step no more than it was when the step was entered.
    pub(crate) fn replicas_capped_by_step(&self) -> i64 {
        match self.step_index() >= self.steps().len() {
            true => self.replicas(),
            false => self.replicas().min(self.replicas_at_step),
        }
    }

    /// The partition in effect: None before the first partition step, when no pod may be updated; Some(None) if nothing
    /// limits the rollout. If there are steps, the spec's own partition is ignored.
    fn partition(&self) -> Option<Option<Value>> {
        let (steps, index) = (self.steps(), self.step_index());
        if steps.is_empty() {
            return Some(self.limit("partition").cloned());
        }
        if index >= steps.len() {
            return Some(None);
        }
        let mut reached = steps.iter().take(index + 1);
        let last = reached.rfind(|step| step.get("partition").is_some())?;
        Some(last.get("partition").cloned())
    }

    /// How many of these replicas are outside the partition.
    fn outside_partition(&self, partition: Option<&Value>, replicas: i64) -> i64 {
        let kept = resolve(partition, replicas, Round::Down).unwrap_or(0);
        let is_share = partition.is_some_and(|it| it.is_string() && it != "100%");
        (replicas - kept).max(i64::from(is_share && replicas > 0))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Round {
    Up,
    Down,
}

/// Resolves a number or percentage.
fn resolve(value: Option<&Value>, total: i64, round: Round) -> Option<i64> {
    let value = value?;
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let text = value.as_str()?;
    let Some(percent) = text.strip_suffix('%') else {
        return text.parse().ok();
    };
    let hundredths = percent.parse::<i64>().ok()? * total;
    Some(match round {
        Round::Up => (hundredths + 99) / 100,
        Round::Down => hundredths / 100,
    })
}

/// The duration of a pause step: seconds, or a string such as 90s or 1h30m. None if the step has none.
pub(crate) fn pause_of(step: &Value) -> Option<SignedDuration> {
    let duration = step.pointer("/pause/duration")?;
    if let Some(seconds) = duration.as_i64() {
        return Some(SignedDuration::from_secs(seconds));
    }
    let text = duration.as_str()?;
    let seconds = text.parse().map(SignedDuration::from_secs).ok();
    seconds.or_else(|| SignedDuration::try_from(text.parse::<Span>().ok()?).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(replicas: i64, at_step: i64, strategy: Value, status: Value) -> Version {
        Version {
            at: Timestamp::UNIX_EPOCH,
            object: Arc::new(json!({
                "spec": {"replicas": replicas, "updateStrategy": strategy},
                "status": status,
            })),
            replicas_at_step: at_step,
        }
    }

    #[test]
    fn limits_are_rounded_as_documented() {
        let unavailable = |strategy| version(6, 6, strategy, json!({})).max_unavailable();
        assert_eq!(unavailable(json!({})), 2);
        assert_eq!(unavailable(json!({"maxSurge": "10%"})), 1);
        assert_eq!(unavailable(json!({"maxUnavailable": "10%", "maxSurge": 1})), 0);
        assert_eq!(unavailable(json!({"maxUnavailable": 0})), 1);
        assert_eq!(unavailable(json!({"maxUnavailable": 3})), 3);
    }

    #[test]
    fn steps_bound_the_pods_at_the_update_revision() {
        let steps = json!([{"pause": {}}, {"partition": 3}, {"pause": {}}, {"partition": "50%"}]);
        let strategy = json!({"partition": 1, "canary": {"steps": steps}});
        let allowed = |index: i64, replicas, at_step| {
            let status = json!({"updateRevision": "b", "canary": {"revision": "a"},
                "currentStepIndex": index});
            version(replicas, at_step, strategy.clone(), status).max_updated()
        };
        assert_eq!(allowed(0, 4, 4), 0);
        assert_eq!(allowed(1, 4, 4), 1);
        assert_eq!(allowed(2, 8, 4), 1, "a scale-out adds no updated pod");
        assert_eq!(allowed(2, 3, 4), 0, "a scale-in keeps the stable pods");
        assert_eq!(allowed(3, 4, 4), 2);
        assert_eq!(allowed(4, 8, 4), 8);
    }

    #[test]
    fn reserved_ordinals_do_not_count() {
        let object = json!({"spec": {
            "replicas": 3, "ordinals": {"start": 2}, "reserveOrders": [1, 3, 5],
        }});
        let version = Version::of(&Arc::new(object), Timestamp::UNIX_EPOCH);
        assert_eq!(version.ordinals(), [2, 4, 6]);
        let among: Vec<i64> = (0..9).filter(|it| version.is_among(*it, 3)).collect();
        assert_eq!(among, [2, 4, 6]);
    }

    #[test]
    fn pauses_are_numbers_or_durations_as_in_go() {
        let seconds = |step| pause_of(&step).map(|pause| pause.as_secs());
        assert_eq!(seconds(json!({"pause": {}})), None);
        assert_eq!(seconds(json!({"pause": {"duration": 60}})), Some(60));
        assert_eq!(seconds(json!({"pause": {"duration": "60"}})), Some(60));
        assert_eq!(seconds(json!({"pause": {"duration": "1h30m"}})), Some(5400));
    }
}
