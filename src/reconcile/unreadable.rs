//! Reports objects that cannot be decoded: by an event and, where the kind has a status, by the condition Ready=False.
//!
//! Only the metadata and the conditions of such an object are read, as JSON, and only the conditions and the observed
//! generation are written.
//! Once the object can be decoded again, its next reconcile replaces the condition.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::refused::requeue_after;
use crate::reconcile::apply::events::{EventRecorder, PendingEvent, Regarding};
use crate::runtime::fair::{Capacity, NamespaceLimiter};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::{Kind, ObjectKey};
use crate::runtime::queue::Requeue;
use crate::runtime::reflector::Unreadable;
use crate::runtime::request::{Content, Refusal, Requests, to_bytes};
use gamekeeper_core::api::{AnnotationLimits, JsonText, Reason};
use gamekeeper_core::workload::{unreadable_conditions, unreadable_message};
use gamekeeper_core::write::Event;

/// Reports objects that cannot be decoded.
#[derive(Clone)]
pub(crate) struct UnreadableReporter {
    requests: Requests,
    events: EventRecorder,
    /// Each report reads an object that may be large, and there may be thousands.
    reads: Arc<NamespaceLimiter>,
}

/// The limits on concurrent reports.
const REPORTS: Capacity = Capacity { shared: 8, per_namespace: 4, reserved: 1 };

/// The parts of an object that are read.
#[derive(Deserialize)]
struct Stored {
    metadata: StoredMetadata,
    #[serde(default)]
    status: Option<StoredStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredStatus {
    conditions: JsonText,
}

/// Longer conditions are not read, so the object only has an event.
const MAX_CONDITIONS: AnnotationLimits = AnnotationLimits { length: 64 << 10, memory: 1 << 20 };

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMetadata {
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: i64,
}

impl UnreadableReporter {
    pub(crate) fn new(requests: Requests, events: EventRecorder) -> Self {
        Self { requests, events, reads: Arc::new(NamespaceLimiter::new(REPORTS)) }
    }

    /// Publishes the event.
    pub(crate) fn publish(&self, kind: Kind, key: &ObjectKey, unreadable: &Unreadable) {
        let regarding = Regarding {
            kind: kind.name(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: unreadable.uid.clone(),
        };
        let event = Event {
            warning: true,
            reason: Reason::Unreadable.to_string(),
            message: unreadable_message(&unreadable.reason),
        };
        self.events.publish(regarding, PendingEvent::Plain(event));
    }

    /// Publishes the event, and writes the condition.
    pub(crate) async fn report(
        &self,
        kind: Kind,
        key: &ObjectKey,
        unreadable: &Unreadable,
    ) -> Requeue {
        self.publish(kind, key, unreadable);
        match self.write_condition(kind, key, unreadable).await {
            Ok(()) | Err(Refusal::NotFound(_)) => Requeue::Settled(None),
            Err(refusal) => {
                if let Refusal::Rejected(_) = refusal {
                    log_limited!(
                        warn,
                        object = %key,
                        %refusal,
                        "cannot write the condition of an object that cannot be decoded"
                    );
                }
                requeue_after(&refusal)
            }
        }
    }

    /// Writes the condition, unless the object has changed or already has it.
    async fn write_condition(
        &self,
        kind: Kind,
        key: &ObjectKey,
        unreadable: &Unreadable,
    ) -> Result<(), Refusal> {
        let _permit = self.reads.take(&key.namespace).await;
        let path = kind.path(&key.namespace, &key.name);
        let stored: Stored = self.requests.read(&path).await?;
        let Some(patch) = patch(&stored, unreadable, Timestamp::now()) else {
            return Ok(());
        };
        let path = format!("{path}/status");
        let patch = to_bytes(&patch);
        self.requests.patch(&path, Content::MergePatch, patch).await?;
        Ok(())
    }
}

/// The merge patch of the status; None if there is nothing to write. It applies to the version that could not be
/// decoded, and to no other.
fn patch(stored: &Stored, unreadable: &Unreadable, now: Timestamp) -> Option<Value> {
    let StoredMetadata { uid, resource_version, generation } = &stored.metadata;
    if *resource_version != unreadable.resource_version {
        // The watch will deliver the newer version.
        return None;
    }
    let status = stored.status.as_ref();
    let conditions = status.map_or("null", |it| it.conditions.text());
    let old: Option<Vec<Value>> = MAX_CONDITIONS.read(conditions)?;
    let old = old.unwrap_or_default();
    let conditions = unreadable_conditions(&old, &unreadable.reason, *generation, now)?;
    Some(json!({
        "metadata": {"uid": uid, "resourceVersion": resource_version},
        "status": {"observedGeneration": generation, "conditions": conditions},
    }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tokio::time::timeout;

    use super::*;
    use crate::runtime::control::Control;

    fn stored(version: &str, status: Value) -> Stored {
        let object = json!({
            "metadata": {"uid": "u", "resourceVersion": version, "generation": 3},
            "spec": {"anything": [1, "two"]},
            "status": status,
        });
        serde_json::from_value(object).expect("an object")
    }

    fn unreadable() -> Unreadable {
        Unreadable {
            uid: "u".into(),
            resource_version: "7".into(),
            reason: "unknown variant `Sometimes`".into(),
            control: Control::None,
            over_budget: false,
        }
    }

    #[test]
    fn the_condition_is_written_once_and_only_to_the_observed_version() {
        let now = Timestamp::UNIX_EPOCH;
        let patched = patch(&stored("7", Value::Null), &unreadable(), now).expect("a patch");
        assert_eq!(patched["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(patched["status"].as_object().map(|it| it.len()), Some(2));
        assert_eq!(patched["status"]["observedGeneration"], 3);
        let condition = &patched["status"]["conditions"][0];
        assert_eq!(condition["reason"], "Unreadable");
        assert_eq!(condition["observedGeneration"], 3);
        let shown = stored("7", patched["status"].clone());
        assert_eq!(patch(&shown, &unreadable(), now), None);
        assert_eq!(patch(&stored("8", Value::Null), &unreadable(), now), None);
    }

    #[test]
    fn conditions_that_are_too_long_or_too_many_maps_are_not_read() {
        let now = Timestamp::UNIX_EPOCH;
        let patched = |conditions: Value| {
            let status = json!({"conditions": conditions});
            patch(&stored("7", status), &unreadable(), now)
        };
        let condition = |message: usize| json!({"type": "A", "message": "x".repeat(message)});
        assert!(patched(json!([condition(60 << 10)])).is_some());
        assert!(patched(json!([condition(64 << 10)])).is_none());
        assert!(patched(json!(vec![json!({"": 0}); 5_000])).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn five_objects_of_a_namespace_are_read_at_a_time() {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let server = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let requests = Requests::new(Client::new(server, "games"));
        let reporter = UnreadableReporter::new(requests, EventRecorder::new().0);
        let report = async |namespace: &str, name: usize| {
            let key = ObjectKey::new(namespace, name.to_string());
            reporter.report(Kind::HookRun, &key, &unreadable()).await
        };
        let of = |namespace: &'static str| join_all((0..10).map(|it| report(namespace, it)));
        let reported = timeout(Duration::from_secs(1), of("games")).await;
        assert!(reported.is_err());
        assert_eq!(read.load(Ordering::Relaxed), 5);
    }
}
