//! End-to-end tests of gamekeeper: on a real control plane, through kubectl, as its users see it.

pub mod audit;
