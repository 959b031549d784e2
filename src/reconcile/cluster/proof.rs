//! Until when the writes of a plan may be sent.
//!
//! Meanwhile, a user may call off the upgrade for which pods are moved, or set back the version whose scripts run. So
//! each write rests on a proof that the Cluster is unchanged, which is valid for half a second.

use std::sync::PoisonError;

use tokio::time::Instant;

use super::drained::remaining_game_pod;
use super::{Clusters, Stop, path_of};
use crate::kinds::Whole;
use crate::reconcile::apply::valid_until;
use crate::runtime::request::Requests;
use crate::runtime::store::Cached;
use gamekeeper_core::api::Cluster;

impl Clusters {
    /// Requests that are sent only while the last proof is valid; it is renewed if it is not. With a node that must be
    /// drained, the proof is a new one: that no game pod is on the node.
    pub(super) async fn proven(
        &self,
        cluster: &Whole<Cluster>,
        drained_node: Option<&str>,
        proven_until: &mut Option<Instant>,
    ) -> Result<Requests, Stop> {
        let until = match *proven_until {
            Some(until) if drained_node.is_none() && Instant::now() < until => until,
            _ => self.prove(cluster, drained_node).await?,
        };
        *proven_until = Some(until);
        Ok(self.requests.sent_before(until))
    }

    /// Returns until when the proof is valid.
    async fn prove(
        &self,
        cluster: &Whole<Cluster>,
        drained_node: Option<&str>,
    ) -> Result<Instant, Stop> {
        let requested = Instant::now();
        self.check_unchanged(cluster).await?;
        if let Some(node) = drained_node {
            self.check_drained(node).await?;
        }
        let timeout = self.proof_timeout.lock();
        let mut timeout = timeout.unwrap_or_else(PoisonError::into_inner);
        valid_until(requested, &mut timeout)
            .ok_or_else(|| Stop::Conflict("the API server is slow to respond".to_owned()))
    }

    /// Checks with a quorum GET that the Cluster has not changed since the plan.
    async fn check_unchanged(&self, cluster: &Whole<Cluster>) -> Result<(), Stop> {
        let found = self.requests.get(&path_of(cluster)).await?;
        let meta = &cluster.object.metadata;
        let generation = meta.generation.unwrap_or_default();
        match found.is_still(cluster.uid(), generation, meta.deletion_timestamp.is_some()) {
            true => Ok(()),
            false => Err(Stop::Conflict("the Cluster has changed".to_owned())),
        }
    }

    /// Checks that no game pod is left on a node whose script needs a drained node: the script may end matches, and the
    /// cache may not show every pod yet.
    pub(super) async fn check_drained(&self, node: &str) -> Result<(), Stop> {
        match remaining_game_pod(&self.requests, node).await? {
            None => Ok(()),
            Some(pod) => {
                Err(Stop::Conflict(format!("pod {pod} is on node {node}, but not in the cache")))
            }
        }
    }
}
