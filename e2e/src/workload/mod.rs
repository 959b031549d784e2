//! The workload under test: its manifest, a view of it in the cluster, and kubectl's table.

pub mod manifest;
pub mod pod_schema;
pub mod table;
pub mod view;

/// Name of the GameDeployment under test, as in the documentation.
pub const GAME: &str = "test-gamedeployment";
/// Name of the GameStatefulSet under test.
pub const SET: &str = "test-gamestatefulset";
