//! End-to-end tests of gamekeeper: on a real control plane, through kubectl, as its users see it.
//!
//! [`trial`] runs the tests, each in a [`case::Case`]: a namespace with an operator, a kubectl and a
//! hook server of its own on the control plane that all tests share ([`cluster`]). When a test is
//! over, the [`judge`] reads what the API server logged about its namespace.
//!
//! An arrow points to what a folder may use:
//!
//! ```text
//! process, servers  <-  faults  <-  cluster  <-  documents, workload  <-  case  <-  addons, trial
//! ```
//!
//! On top of them are stories that tests and benches share: [`campaign`] (histories that a seed
//! writes), [`takeover`] (the leader goes) and [`tenants`] (one who attacks beside one who plays).

pub mod addons;
pub mod campaign;
pub mod case;
pub mod checkout;
pub mod cluster;
pub mod documents;
pub mod faults;
pub mod process;
pub mod random;
pub mod servers;
pub mod takeover;
pub mod tenants;
pub mod trial;
pub mod wait;
pub mod workload;
