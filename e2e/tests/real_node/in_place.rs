//! In-place updates of real containers. A pod's gate is never open while nothing answers, or while the version that
//! answers is not that of the pod's image.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::wait::eventually;
use e2e::workload::view::{Pod, View};
use judge::object::is_true;

use crate::fixture::{Images, game};
use crate::observation::{GATE, Observation};

/// How long an update to another name of an image may take. If a busy kubelet skips the status between the old container and the new one, and the
/// node reports another name of the same image, the operator relies on the new container after five minutes.
const RETAGGED_WITHIN: Duration = Duration::from_mins(7);

/// Creates the workload with this image, and begins to poll its pods.
async fn start(case: &Case, image: &str) -> Result<Observation> {
    case.apply(game(image)).await?;
    Observation::start(&case.until_settled(2).await?.pods)
}

/// Waits until both pods run this image, and checks how often their containers were restarted in total.
async fn until_updated(case: &Case, image: &str, restarts: i64) -> Result<()> {
    let view = case.until_settled(2).await?;
    check_updated(&view, image, restarts)
}

/// The same, after an update to another name of the same image.
async fn until_retagged(case: &Case, image: &str, restarts: i64) -> Result<()> {
    let view = eventually("settled", RETAGGED_WITHIN, async || {
        let view = case.view().await?;
        view.ensure(view.is_settled(2))?;
        Ok(view)
    });
    check_updated(&view.await?, image, restarts)
}

fn check_updated(view: &View, image: &str, restarts: i64) -> Result<()> {
    view.ensure(view.ready_with(image) == 2)?;
    let restarted: i64 = view.pods.iter().map(|pod| pod.restarts()).sum();
    ensure!(restarted == restarts, "{restarted} restarts: {}", view.summary());
    Ok(())
}

/// Waits until only one pod serves, and checks that it stays that way. The kubelet updates Ready some time after the
/// gate has changed.
async fn until_one_serves(case: &Case, seconds: u64) -> Result<()> {
    case.until("one pod serves", one_serves).await?;
    case.consistently("one pod serves", seconds, one_serves).await
}

/// Whether one pod serves and the gate of the other is closed.
fn one_serves(view: &View) -> bool {
    let count = |condition: &str| {
        let has_condition = |pod: &&Pod| is_true(&pod.0, condition);
        view.pods.iter().filter(has_condition).count()
    };
    count(GATE) == 1 && count("Ready") == 1
}

#[e2e::test]
async fn a_new_version_replaces_the_old_one(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish("v2", "v2"));
    let observation = start(case, &v1).await?;
    case.set_image(&v2).await?;
    until_updated(case, &v2, 2).await?;
    observation.check(case, &images.versions(), &["v1", "v2"])?;
    Ok(())
}

#[e2e::test]
async fn an_update_to_another_name_of_the_same_content_completes(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    // If several names have the same content, the node reports the first.
    let (v1, other) = (images.publish("v1", "v1"), images.publish("v1-retag", "v1"));
    let observation = start(case, &v1).await?;
    case.set_image(&other).await?;
    until_retagged(case, &other, 2).await?;
    case.set_image(&v1).await?;
    until_retagged(case, &v1, 4).await?;
    observation.check(case, &images.versions(), &["v1"])?;
    Ok(())
}

#[e2e::test]
async fn a_slow_pull_keeps_the_gate_closed(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish("v2", "v2"));
    let observation = start(case, &v1).await?;
    let held = images.hold(&v2);
    case.set_image(&v2).await?;
    images.until_requested(&v2).await;
    until_one_serves(case, 4).await?;
    drop(held);
    until_updated(case, &v2, 2).await?;
    observation.check(case, &images.versions(), &["v1", "v2"])?;
    Ok(())
}

#[e2e::test]
async fn a_crashing_version_can_be_reverted(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, crash) = (images.publish("v1", "v1"), images.publish_crashing("v2"));
    let observation = start(case, &v1).await?;
    case.set_image(&crash).await?;
    let crashed = |view: &View| view.pods.iter().any(|pod| pod.restarts() >= 2);
    case.until("the new version has crashed", crashed).await?;
    until_one_serves(case, 2).await?;
    case.set_image(&v1).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with(&v1) == 2)?;
    observation.check(case, &images.versions(), &["v1"])?;
    Ok(())
}

#[e2e::test]
async fn a_change_can_be_reverted_during_the_pull(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish_quick("v2", "v2"));
    let observation = start(case, &v1).await?;
    let held = images.hold(&v2);
    case.set_image(&v2).await?;
    images.until_requested(&v2).await;
    case.set_image(&v1).await?;
    // The kubelet completes the first change before it makes the second.
    until_one_serves(case, 1).await?;
    drop(held);
    until_updated(case, &v1, 2).await?;
    observation.check(case, &images.versions(), &["v1"])?;
    Ok(())
}

#[e2e::test]
async fn a_change_can_be_superseded_during_the_pull(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish_quick("v2", "v2"));
    let v3 = images.publish("v3", "v3");
    let observation = start(case, &v1).await?;
    let (held, next_held) = (images.hold(&v2), images.hold(&v3));
    case.set_image(&v2).await?;
    images.until_requested(&v2).await;
    case.set_image(&v3).await?;
    case.until("the change has been superseded", |view| view.count_with(&v3) == 1).await?;
    drop(held);
    images.until_requested(&v3).await;
    until_one_serves(case, 1).await?;
    drop(next_held);
    until_updated(case, &v3, 3).await?;
    observation.check(case, &images.versions(), &["v1", "v3"])?;
    Ok(())
}

#[e2e::test]
async fn a_missing_image_can_be_reverted(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let v1 = images.publish("v1", "v1");
    let observation = start(case, &v1).await?;
    let missing = images.unpublished("v2");
    case.set_image(&missing).await?;
    images.until_requested(&missing).await;
    until_one_serves(case, 4).await?;
    case.set_image(&v1).await?;
    until_updated(case, &v1, 1).await?;
    observation.check(case, &images.versions(), &["v1"])?;
    Ok(())
}

#[e2e::test]
async fn an_image_can_be_given_by_digest(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let v1 = images.publish("v1", "v1");
    let (v2, v3) = (images.publish_digest("v2", "v2"), images.publish_digest("v3", "v3"));
    let observation = start(case, &v1).await?;
    case.set_image(&v2).await?;
    until_updated(case, &v2, 2).await?;
    case.set_image(&v3).await?;
    until_updated(case, &v3, 4).await?;
    observation.check(case, &images.versions(), &["v1", "v2", "v3"])?;
    Ok(())
}

#[e2e::test]
async fn an_update_continues_after_the_operator_is_killed_during_the_pull(
    case: &mut Case,
) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish("v2", "v2"));
    let observation = start(case, &v1).await?;
    let held = images.hold(&v2);
    case.set_image(&v2).await?;
    images.until_requested(&v2).await;
    case.kill_operator().await?;
    drop(held);
    // The new version answers, and no operator opens the gate.
    until_one_serves(case, 3).await?;
    case.operator.start().await?;
    until_updated(case, &v2, 2).await?;
    observation.check(case, &images.versions(), &["v1", "v2"])?;
    Ok(())
}

/// The gate alone does not keep requests away: they are routed according to Ready, which the kubelet updates some
/// time after the gate has changed.
#[e2e::test]
async fn a_grace_period_keeps_ready_pods_answering(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish("v2", "v2"));
    let grace = "/spec/updateStrategy/inPlaceUpdateStrategy/gracePeriodSeconds";
    // Under load, the kubelet may update Ready only after some seconds.
    case.apply(game(&v1).set(grace, 15)).await?;
    let observation = Observation::start(&case.until_settled(2).await?.pods)?;
    case.set_image(&v2).await?;
    until_updated(case, &v2, 2).await?;
    observation.check(case, &images.versions(), &["v1", "v2"])?;
    let ready = observation.compare(case, "Ready", &images.versions())?;
    ready.ensure_no_wrong_response()
}
