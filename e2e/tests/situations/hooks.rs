//! Hooks that run, refuse, or cannot be run.

use anyhow::Result;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use serde_json::json;

use super::{Situation, play, prepare_hooks};
use crate::guard_setup::install_policy;

#[e2e::test]
async fn hooks_of_pods(case: &mut Case) -> Result<()> {
    prepare_hooks(case).await?;
    let scaled = |template: &str| {
        let game = Game::rolling(2).pre_delete(template);
        (game.clone(), game.set("/spec/replicas", 1))
    };
    let scale_in = |name: &'static str, template: &str| {
        let (before, game) = scaled(template);
        Situation::by_change(name, before, game)
    };
    let refused = |point: &'static str| vec![point, "kubectl game retry"];
    let missing = || Game::rolling(2).pre_delete("missing");
    play(
        case,
        vec![
            scale_in("scale-in-waits", "waits").expect(
                "HookRunning",
                &["waits for PreDelete hook", "kubectl game hooks"],
                3,
            ),
            scale_in("scale-in-refused", "refuses").expect(
                "HookNotSuccessful",
                &refused("its PreDelete hook"),
                2,
            ),
            scale_in("unreachable-hook", "unreachable").expect(
                "HookNotMeasured",
                &["waits for PreDelete hook", "127.0.0.1:1", "kubectl game hooks"],
                3,
            ),
            scale_in("hook-with-error", "errs").expect(
                "HookNotSuccessful",
                &["ended Error", "kubectl game retry"],
                2,
            ),
            scale_in("endless-hook", "endless").expect("HookCannotSucceed", &["webtest"], 2),
            scale_in("hook-without-argument", "needs-argument").expect(
                "HookArgumentMissing",
                &["zone", "kubectl get hooktemplates"],
                2,
            ),
            Situation::by_change("no-template", missing(), missing().set("/spec/replicas", 1))
                .expect("HookTemplateNotFound", &["missing", "kubectl get hooktemplates"], 2),
            Situation::by_update("update-waits", Game::in_place(2).pre_inplace("waits")).expect(
                "HookRunning",
                &["waits for PreInplace hook"],
                3,
            ),
            Situation::by_update("update-refused", Game::in_place(2).pre_inplace("refuses"))
                .expect("HookNotSuccessful", &refused("its PreInplace hook"), 2),
            Situation::by_update("after-update-refused", Game::in_place(2).post_inplace("refuses"))
                .expect("HookNotSuccessful", &refused("its PostInplace hook"), 2),
            Situation::by_change(
                "set-scale-in-refused",
                Game::parallel(2).pre_delete("refuses"),
                Game::parallel(2).pre_delete("refuses").set("/spec/replicas", 1),
            )
            .expect("HookNotSuccessful", &refused("set-scale-in-refused-1"), 2),
            Situation::by_typing(
                "move-waits",
                Game::rolling(2).pre_delete("waits"),
                &["kubectl game move pod/POD"],
            )
            .expect("HookRunning", &["waits for PreDelete hook"], 3),
        ],
    )
    .await
}

#[e2e::test]
async fn hooks_of_steps(case: &mut Case) -> Result<()> {
    prepare_hooks(case).await?;
    let canary = |template: &str| {
        let steps = json!([{"partition": 1}, {"hook": {"templateName": template}}]);
        Game::in_place(2).steps(steps)
    };
    let update = |name: &'static str, template: &str| Situation::by_update(name, canary(template));
    play(
        case,
        vec![
            update("step-waits", "waits").expect(
                "HookRunning",
                &["waits for the hook of canary step 1", "kubectl game hooks"],
                3,
            ),
            update("step-refused", "refuses").expect(
                "PausedByStepBasedHook",
                &["canary step 1", "ended Failed", "kubectl game retry", "kubectl game undo"],
                2,
            ),
            update("step-without-template", "missing").expect(
                "HookTemplateNotFound",
                &["missing"],
                2,
            ),
        ],
    )
    .await
}

#[e2e::test]
async fn hooks_of_guarded_pods(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    prepare_hooks(case).await?;
    let guarded = |template: &str| Game::rolling(2).pre_delete(template).guarded();
    play(
        case,
        vec![
            Situation::by_change(
                "guarded-refused",
                guarded("refuses").set("/spec/protection/askAgainSeconds", 60),
                guarded("refuses")
                    .set("/spec/protection/askAgainSeconds", 60)
                    .set("/spec/replicas", 1),
            )
            .expect(
                "HookNotSuccessful",
                &[
                    "the hook is run again automatically",
                    "kubectl game retry",
                    "to end the match now",
                ],
                3,
            ),
            Situation::by_typing(
                "guarded-deletion",
                guarded("waits"),
                &["kubectl delete NAME --wait=false"],
            )
            .expect(
                "HookRunning",
                &["will be deleted once its pods are", "kubectl game release"],
                3,
            ),
        ],
    )
    .await
}
