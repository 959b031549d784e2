//! End-to-end tests of Gamekeeper on a real control plane, through kubectl.
//!
//! [`trial`] runs the tests, each in a [`case::Case`]: a namespace with its own operator, kubeconfig and
//! hook server, on a control plane that all tests share ([`cluster`]). After each test, the [`judge`]
//! reads the audit log of its namespace.
//!
//! An arrow points to what a folder may use:
//!
//! ```text
//! process, servers  <-  faults  <-  cluster  <-  documents, node, workload  <-  case  <-  addons, trial  <-  areas
//! ```
//!
//! On top of them are scenarios that tests and benchmarks share: [`campaign`] (histories generated from
//! seeds), [`takeover`] (the leader exits) and [`tenants`] (one tenant attacks while another rolls out).

pub mod addons;
pub mod areas;
pub mod browser;
pub mod campaign;
pub mod case;
pub mod checkout;
pub mod cluster;
pub mod documents;
pub mod faults;
pub mod node;
pub mod process;
pub mod random;
pub mod servers;
pub mod takeover;
pub mod tenants;
pub mod trial;
pub mod wait;
pub mod workload;

pub use e2e_attribute::test;
#[doc(hidden)]
pub use inventory;
