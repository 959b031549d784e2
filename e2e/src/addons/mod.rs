//! What some tests install in addition to their operator.

pub mod prometheus;
pub mod webhook;
