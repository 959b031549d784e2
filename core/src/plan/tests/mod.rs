//! Tests of whole plans, written as stories: a user does something, the operator reconciles, and pods and hooks
//! respond.

mod batches;
mod canary;
mod clocks;
mod container_order;
mod failures;
mod golden;
mod hooks;
mod in_place;
mod indexes;
mod limits;
mod migrated;
mod nothing_to_lose;
mod on_delete;
mod promotion;
mod protection;
mod recording;
mod reserved;
mod rolling;
mod scaling;
mod set_updates;
mod sets;
mod sidecar_updates;
mod sidecars;
mod story;
mod volumes;
