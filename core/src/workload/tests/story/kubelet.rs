//! The kubelets of a story: they run the containers and make pods ready.

use super::*;

impl<K: Planned + Serialize> Story<K> {
    /// Lets the kubelets act.
    pub fn kubelets_act(&mut self) {
        self.advance_kubelets();
    }

    /// Pods run the images of their spec, and become ready if their gate is open. Returns whether anything changed.
    pub(super) fn advance_kubelets(&mut self) -> bool {
        let now = self.world.now;
        let mut changed = false;
        self.clock += 1;
        for slot in &mut self.world.pods {
            let mut pod = slot.as_ref().clone();
            pod.phase = match (&self.rejection, pod.phase) {
                (_, PodPhase::Failed | PodPhase::Succeeded) => pod.phase,
                (Some(why), PodPhase::Pending) => {
                    pod.ended_at_once = Some(why.as_str().into());
                    PodPhase::Failed
                }
                _ => PodPhase::Running,
            };
            pod.observed_generation = pod.generation;
            let is_running = !pod.ended();
            for container in &mut pod.containers {
                run_desired_image(container, pod.hot_patched, now);
                set_running(container, is_running, now);
            }
            let ready = !pod.ended()
                && !pod.labels.contains_key("broken")
                && matches!(pod.gate, Gate::None | Gate::Open);
            pod.ready_since = ready.then(|| pod.ready_since.unwrap_or(now));
            if pod != **slot {
                pod.resource_version = self.clock;
                *slot = Arc::new(pod);
                changed = true;
            }
        }
        changed
    }
}

fn run_desired_image(container: &mut Container, hot_patched: bool, now: Timestamp) {
    let Some(status) = &mut container.status else {
        return;
    };
    if status.image != container.image {
        status.image = container.image.clone();
        status.image_id = format!("id-{}", container.image);
        if !hot_patched {
            status.restart_count += 1;
            status.container_id = format!("{}+", status.container_id);
            status.started_at = Some(long_before(now));
        }
    }
}

pub(super) fn set_running(container: &mut Container, is_running: bool, now: Timestamp) {
    let Some(status) = &mut container.status else {
        return;
    };
    if status.running != is_running {
        status.started_at = is_running.then(|| long_before(now));
    }
    status.running = is_running;
    status.ready = is_running;
}

/// Containers of a story have run for long enough to prove their build, unless a test says something else.
fn long_before(now: Timestamp) -> Timestamp {
    now - SignedDuration::from_mins(1)
}
