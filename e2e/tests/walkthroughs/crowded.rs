//! The walkthroughs as they go in a company's cluster: a mesh, a mutating policy, a quota that has room for nothing more,
//! and a LimitRange; and a GitOps tool sends the manifest again every three seconds.

use anyhow::Result;
use e2e::addons::crowd::crowd;
use e2e::case::Case;
use e2e::case::gitops::Style::{Replace, ServerSide};

use super::{canary, hooks};

/// Plays walkthroughs, each with a quota for so many pods and with a tool that sends manifests in this way.
macro_rules! crowded {
    ($($name:ident: $walkthrough:path, $pods:literal, $style:ident;)*) => {
                $(#[e2e::test]
        async fn $name(case: &mut Case) -> Result<()> {
            let policy = crowd(case, $pods).await?;
            case.delivery = Some($style);
            let played = $walkthrough(case).await;
            let delivered = case.stop_delivery();
            policy.end(case).await?;
            played.and(delivered)
        })*
    };
}

crowded! {
    steps_with_replace: canary::the_steps_pause_as_documented, 4, Replace;
    steps_with_server_side_apply: canary::the_steps_pause_as_documented, 4, ServerSide;
    a_successful_hook_with_replace: canary::a_successful_hook_completes_the_canary, 4, Replace;
    a_successful_hook_with_server_side_apply: canary::a_successful_hook_completes_the_canary, 4, ServerSide;
    a_scale_in_with_replace: hooks::a_scale_in_and_an_update_wait_for_a_hook, 6, Replace;
    a_scale_in_with_server_side_apply: hooks::a_scale_in_and_an_update_wait_for_a_hook, 6, ServerSide;
    a_retry_with_replace: hooks::a_failed_hook_keeps_its_pod_until_it_is_retried, 6, Replace;
    a_retry_with_server_side_apply: hooks::a_failed_hook_keeps_its_pod_until_it_is_retried, 6, ServerSide;
    arguments_with_replace: hooks::hooks_get_arguments, 4, Replace;
    arguments_with_server_side_apply: hooks::hooks_get_arguments, 4, ServerSide;
}
