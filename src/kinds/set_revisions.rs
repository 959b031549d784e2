//! ControllerRevisions in the operator's own namespace: those of SidecarSets, and the names of all others, because new
//! revisions cannot reuse these names.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::Value;

use crate::runtime::store::{Cached, Head};
use crate::runtime::watch::version_number;
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::api::names::{SIDECAR_SET_LABEL, controller_of};
use gamekeeper_core::sidecar_set::SetRevision;

/// The cached form of a ControllerRevision in the operator's namespace.
#[derive(Clone, Debug)]
pub(crate) struct CachedSetRevision {
    namespace: String,
    name: String,
    uid: String,
    version: u64,
    terminating: bool,
    /// The uid of the SidecarSet that controls the revision.
    set_uid: Option<String>,
    /// The name of that set.
    set_name: Option<String>,
    /// What the revision records; None if it neither belongs to a SidecarSet nor is an orphan of one.
    revision: Option<Arc<SetRevision>>,
}

impl CachedSetRevision {
    pub(crate) fn new(object: ControllerRevision) -> Self {
        let meta = object.metadata;
        let owner = controller_of(&meta);
        let set_owner = owner.filter(|it| it.kind == "SidecarSet" && it.api_version == API_VERSION);
        let set_uid = set_owner.map(|owner| owner.uid.clone());
        let set_name = set_owner.map(|owner| owner.name.clone());
        let labels = meta.labels.as_ref();
        let is_orphan =
            owner.is_none() && labels.is_some_and(|it| it.contains_key(SIDECAR_SET_LABEL));
        let data = object.data.map(|it| it.0).unwrap_or_default();
        let (name, uid) = (meta.name.unwrap_or_default(), meta.uid.unwrap_or_default());
        let revision = (set_uid.is_some() || is_orphan).then(|| {
            Arc::new(SetRevision {
                name: name.clone(),
                uid: uid.clone(),
                number: object.revision,
                content: content(data),
            })
        });
        Self {
            namespace: meta.namespace.unwrap_or_default(),
            name,
            uid,
            version: version_number(&meta.resource_version.unwrap_or_default()),
            terminating: meta.deletion_timestamp.is_some(),
            set_uid,
            set_name,
            revision,
        }
    }

    /// Whether a set with this name may adopt the revision: no set controls it, or an earlier set with this name does.
    pub(crate) fn is_adoptable_by(&self, set: &str) -> bool {
        let owner = self.set_name.as_ref();
        owner.is_none_or(|owner| owner == set)
    }

    /// The uid of the SidecarSet that controls the revision.
    pub(crate) fn set_uid(&self) -> Option<&str> {
        self.set_uid.as_deref()
    }

    /// What the revision records, if it belongs to a SidecarSet or is an orphan of one.
    pub(crate) fn revision(&self) -> Option<&Arc<SetRevision>> {
        self.revision.as_ref()
    }
}

/// The part of a revision's data that specifies what is injected.
fn content(mut data: Value) -> Value {
    data.get_mut("spec").map(Value::take).unwrap_or_default()
}

impl Cached for CachedSetRevision {
    fn head(&self) -> Head<'_> {
        Head {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            version: self.version,
            terminating: self.terminating,
            controller: self.set_uid.as_deref(),
        }
    }
}
