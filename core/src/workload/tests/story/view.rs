//! What tests read from a story.

use super::*;

impl<K: Planned + Serialize> Story<K> {
    /// An annotation of the workload.
    pub fn annotation(&self, key: &str) -> Option<&String> {
        self.object.annotations().get(key)
    }

    pub fn pods(&self) -> Vec<&Pod> {
        self.world.pods.iter().map(AsRef::as_ref).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.world.pods.iter().map(|pod| pod.name.clone()).collect()
    }

    pub fn runs(&self) -> Vec<String> {
        self.world.runs.iter().map(|run| run.metadata.name.clone().unwrap_or_default()).collect()
    }

    /// Image tags of all pods, sorted.
    pub fn images(&self) -> String {
        let mut images: Vec<_> = self
            .pods()
            .iter()
            .map(|pod| pod.containers[0].image.trim_start_matches("game:").to_owned())
            .collect();
        images.sort();
        images.join(" ")
    }

    /// The columns of `kubectl get`.
    pub fn columns(&self) -> String {
        let status = self.status();
        format!(
            "{} {} {} {} {}",
            self.spec()["replicas"],
            status.updated_replicas,
            status.updated_ready_replicas,
            status.ready_replicas,
            status.replicas
        )
    }

    pub fn status(&self) -> WorkloadStatus {
        let status = self.object.status();
        status.map(|it| it.as_ref().clone()).unwrap_or_default()
    }

    pub(super) fn spec(&self) -> Value {
        serde_json::to_value(&self.object).expect("object")["spec"].take()
    }

    pub fn paused(&self) -> bool {
        self.spec()["updateStrategy"]["paused"] == true
    }

    pub fn condition(&self, type_: &str) -> Option<(String, String)> {
        let condition = self.status().conditions.into_iter().find(|it| it.type_ == type_)?;
        Some((condition.reason, condition.message))
    }

    /// The number of actions in [`Story::done`] for which `is_counted` is true.
    pub fn count(&self, is_counted: impl Fn(&Write) -> bool) -> usize {
        self.done.iter().filter(|action| is_counted(action)).count()
    }

    /// The claims and the kinds of their owners, as text.
    pub fn claims(&self) -> String {
        let claims = self.world.claims.values().map(|claim| {
            let owners: Vec<_> = claim.owners.iter().map(|it| it.kind.as_str()).collect();
            format!("{}:{}", claim.name, owners.join("+"))
        });
        claims.collect::<Vec<_>>().join(" ")
    }
}
