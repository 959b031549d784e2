//! A real control plane, and operators as separate processes with the permissions of the chart.

pub mod chart;
pub mod control_plane;
pub mod lifecycle;
pub mod link;
pub mod operator;
