//! What happened: the writes in their order, and the world that each of them met.

pub(crate) mod history;
mod rebuild;
pub(crate) mod workload;
pub(crate) mod world;
