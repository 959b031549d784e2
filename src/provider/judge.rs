//! Applies the conditions of a metric to the measured value.

use gamekeeper_core::api::{HookPhase, Metric};
use gamekeeper_core::expr::{Condition, Subject, brief};
use gamekeeper_core::hook_run::{Outcome, judge};

/// The two conditions of a metric. An empty condition counts as none.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    success: Option<String>,
    failure: Option<String>,
}

impl Conditions {
    pub(super) fn of(metric: &Metric) -> Self {
        let set = |source: &Option<String>| source.clone().filter(|source| !source.is_empty());
        Conditions {
            success: set(&metric.success_condition),
            failure: set(&metric.failure_condition),
        }
    }

    /// Whether the metric has no conditions.
    pub(super) fn is_empty(&self) -> bool {
        self.success.is_none() && self.failure.is_none()
    }

    /// Judges the measured value. If the outcome has a message, the note is added to it. Must run on the evaluation
    /// pool.
    pub(super) fn judge(&self, subject: &Subject<'_>, note: Option<&str>) -> Outcome {
        let value = subject.shown();
        let noted = |message: String| match note {
            Some(note) => format!("{message} ({note})"),
            None => message,
        };
        match self.decide(subject) {
            Ok((success, failure)) => {
                let phase = judge(success, failure);
                let message = self.explain(phase, success, &value).map(noted);
                Outcome { phase, value: Some(value), message, ..Outcome::default() }
            }
            Err(why) => Outcome { value: Some(value), ..Outcome::error(noted(why)) },
        }
    }

    fn decide(&self, subject: &Subject<'_>) -> Result<(Option<bool>, Option<bool>), String> {
        let holds = |field: &str, source: &Option<String>| {
            let source = source.as_deref();
            let decided = source.map(|source| Condition::compile(source)?.holds(subject));
            decided.transpose().map_err(|error| format!("{field} {error}"))
        };
        Ok((holds("successCondition", &self.success)?, holds("failureCondition", &self.failure)?))
    }

    fn explain(&self, phase: HookPhase, success: Option<bool>, value: &str) -> Option<String> {
        let success_text = self.success.as_deref().unwrap_or_default();
        let failure_text = self.failure.as_deref().unwrap_or_default();
        let why = match (phase, success) {
            (HookPhase::Successful, _) => return None,
            (HookPhase::Inconclusive, _) => format!(
                "neither successCondition {success_text} nor failureCondition {failure_text} holds"
            ),
            (_, Some(false)) if self.failure.is_none() => {
                format!("successCondition {success_text} does not hold")
            }
            _ => format!("failureCondition {failure_text} holds"),
        };
        Some(format!("{why}: result is {}", brief(value)))
    }
}
