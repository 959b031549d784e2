//! Components that some tests install in addition to the operator.

pub mod argo_cd;
pub mod crowd;
pub mod defaulted;
pub mod interference;
pub mod kstatus;
pub mod policy;
pub mod prometheus;
pub mod webhook;
