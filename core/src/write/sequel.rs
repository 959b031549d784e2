//! Writes that follow another one without a new plan.

use jiff::Timestamp;

use super::{Change, InPlacePatch, Write};
use crate::observed::PodRef;
use crate::observed::time::rounded_down;

/// What the API server says about an object that was written.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's uid.
    pub uid: &'a str,
    /// Its new resourceVersion.
    pub version: u64,
}

impl Write {
    /// The write, if any, that follows this one, which was sent at `sent`. If the process dies in between, the next plan
    /// continues.
    pub fn sequel(&self, answer: Answer, sent: Timestamp) -> Option<Write> {
        match self.change() {
            // With its gate already open, the pod can be Ready in the kubelet's first status.
            Change::CreatePod(new) if new.has_gate => Some(Write::open_gate(PodRef {
                namespace: answer.namespace.to_owned(),
                name: new.name.clone(),
                uid: answer.uid.to_owned(),
                version: None,
                allowed_until: None,
            })),
            // A probe before this write would examine the previous budget.
            Change::ApplyBudget(budget) => Some(Write::probe_guard(budget.name.clone())),
            Change::SetGate { then: Some(patch), .. } => {
                let mut patch = InPlacePatch::clone(patch);
                patch.record.gate_closed_at = Some(rounded_down(sent));
                // The pod was unchanged when its gate was closed, and must not have changed since.
                patch.pod.version = patch.pod.version.map(|_| answer.version);
                Some(Write::change_after_gate(patch))
            }
            _ => None,
        }
    }
}
