//! A real control plane, and operators beside it as processes of their own, with the rights that the
//! chart gives them.

pub mod chart;
pub mod control_plane;
pub mod link;
pub mod operator;
