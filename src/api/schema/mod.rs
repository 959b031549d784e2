//! The schemas of the CRDs: what the types' derives cannot say by themselves.

mod core;
mod crds;

pub(super) use core::{any_json, job_spec, object_meta, pod_template, volume_claim_templates};
pub use crds::crds;
