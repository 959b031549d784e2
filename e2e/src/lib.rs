//! End-to-end tests of gamekeeper: on a real control plane, through kubectl, as its users see it.
//!
//! `trial` runs the tests, each in a [`case::Case`]: a namespace with an operator, a kubectl and a
//! hook server of its own on the [`control_plane`] that all tests share. When a test is over, the
//! [`judge`] reads what the API server logged about its namespace. `evidence` keeps what
//! is worth reading when it failed.

pub mod authority;
pub mod bad_manifest;
pub mod campaign;
pub mod case;
pub mod chart;
pub mod command;
pub mod control_plane;
pub mod dashboard;
pub mod evidence;
pub mod faults;
pub mod hook_server;
pub mod link;
pub mod manifest;
pub mod operator;
pub mod program;
pub mod prometheus;
pub mod proxy;
pub mod random;
pub mod raw_server;
pub mod shell;
pub mod table;
pub mod takeover;
pub mod tenants;
pub mod transcript;
pub mod trial;
pub mod view;
pub mod wait;
pub mod webhook;
