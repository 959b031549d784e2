//! Changes of the SidecarSet by users.

use super::SetChange;
use crate::model::Model;
use crate::state::*;

/// Whether a change would have an effect.
pub fn has_effect(change: SetChange, set: &SidecarSet) -> bool {
    match change {
        SetChange::Create => !set.exists,
        _ if !set.exists => false,
        SetChange::Image(image) => set.image != image,
        SetChange::Pause => !set.paused,
        SetChange::Resume => set.paused,
        SetChange::Partition(kept) => set.partition != kept,
        SetChange::Delete => true,
    }
}

/// Makes a change.
pub fn change(model: &Model, state: &mut State, change: SetChange) {
    let lags = model.scope.sidecars.is_some_and(|it| it.set_lags);
    let set = state.sidecar_set.change(lags, false);
    match change {
        SetChange::Image(image) => set.image = image,
        SetChange::Pause => set.paused = true,
        SetChange::Resume => set.paused = false,
        SetChange::Partition(kept) => set.partition = kept,
        SetChange::Create => set.exists = true,
        SetChange::Delete => {
            *set = SidecarSet { image: set.image, ..SidecarSet::default() };
        }
    }
}
