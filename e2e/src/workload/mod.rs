//! The workload that a test is about: its manifest, what there is of it, and the table that kubectl
//! prints of it.

pub mod manifest;
pub mod table;
pub mod view;

/// Name of the workload that most tests are about, as in the documents.
pub const GAME: &str = "test-gamedeployment";
/// Name of the GameStatefulSet that a test is about.
pub const SET: &str = "test-gamestatefulset";
