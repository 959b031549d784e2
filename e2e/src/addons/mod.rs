//! What some tests install beside their operator.

pub mod prometheus;
pub mod webhook;
