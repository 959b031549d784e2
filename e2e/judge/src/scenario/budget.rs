//! The budget of guarded pods in a scenario.

use serde_json::{Value, json};

use super::{GAME, OPERATOR, Scenario};
use crate::names;

/// Name of the budget.
const BUDGET: &str = "game-guarded-x";

impl Scenario {
    /// The operator applies the budget of the workload. If nothing changes, the budget keeps its version.
    pub(crate) fn apply_budget(&mut self) {
        self.write_budget(json!({}));
    }

    /// The operator annotates the budget of the workload.
    pub(crate) fn annotate_budget(&mut self) {
        self.write_budget(json!({"x": "y"}));
    }

    fn write_budget(&mut self, annotations: Value) {
        let metadata =
            json!({"name": BUDGET, "labels": {names::GUARDED: GAME}, "annotations": annotations});
        let budget = json!({"kind": "PodDisruptionBudget", "metadata": metadata, "spec": {}});
        let unchanged = self.budget.take().filter(|(it, _)| *it == budget);
        let newest = self.log.version;
        if let Some((_, version)) = &unchanged {
            self.log.version = version - 1;
        }
        self.log.write(OPERATOR, "patch", "poddisruptionbudgets", "", BUDGET, budget.clone());
        self.budget = Some((budget, self.log.version));
        self.log.version = self.log.version.max(newest);
    }

    /// The operator deletes the budget of the workload.
    pub(crate) fn delete_budget(&mut self) {
        self.delete_budget_by(OPERATOR);
    }

    /// A user deletes the budget of the workload.
    pub(crate) fn delete_budget_by(&mut self, user: &str) {
        let gone = json!({"kind": "Status"});
        self.log.write(user, "delete", "poddisruptionbudgets", "", BUDGET, gone);
        self.budget = None;
    }

    /// The operator checks whether the guard is in force.
    pub(crate) fn check_guard(&mut self, is_in_force: bool) {
        let status = json!({"kind": "Status"});
        self.log.write(OPERATOR, "delete", "poddisruptionbudgets", "", BUDGET, status);
        let event = self.log.events.last_mut().expect("an event");
        event.uri.push_str("?dryRun=All");
        if is_in_force {
            let status = event.response_status.as_mut().expect("a status");
            status.code = 403;
        }
    }
}
