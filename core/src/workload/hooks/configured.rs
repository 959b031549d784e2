//! The hook that is configured for a point.

use std::cell::OnceCell;

use crate::api::HookStep;
use crate::api::names::HookPoint;
use crate::workload::hooks::run_maker;
use crate::workload::hooks::run_maker::CannotMake;
use crate::workload::hooks::run_maker::HookMaker;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// The hook of a point: what all its runs have in common.
pub(super) struct Hook<'a> {
    pub point: HookPoint,
    pub step: &'a HookStep,
    /// Part of the identity of its runs.
    pub hash: String,
    /// Creates its runs; built when the first run is needed.
    maker: OnceCell<Result<HookMaker<'a>, CannotMake>>,
}

impl<'a> Hook<'a> {
    pub(super) fn of(workload: &'a Workload<'a>, point: HookPoint) -> Option<Self> {
        let step = workload.hooks.hook(point)?;
        Some(Self { point, step, hash: run_maker::hook_hash(step), maker: OnceCell::new() })
    }

    pub(super) fn maker(
        &self,
        workload: &'a Workload<'a>,
        world: &'a World,
    ) -> &Result<HookMaker<'a>, CannotMake> {
        let make = || HookMaker::new(workload, world, self.point, self.step);
        self.maker.get_or_init(make)
    }
}
