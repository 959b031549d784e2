//! Tests of whole plans, written as stories: a user does something, the operator reconciles, and pods and hooks
//! respond.

mod autoscaling;
mod batches;
mod canary;
mod causes;
mod clocks;
mod container_order;
mod defaults;
mod failures;
mod first_template;
mod golden;
mod hangs;
mod hooks;
mod in_place;
mod indexes;
mod kstatus;
mod limits;
mod migrated;
mod nothing_to_lose;
mod on_delete;
mod promotion;
mod protection;
mod quotas;
mod recording;
mod refusals;
mod reserved;
mod rolling;
mod scaling;
mod set_updates;
mod sets;
mod sidecar_updates;
mod sidecars;
pub mod story;
mod undo;
mod vacated;
mod volumes;
