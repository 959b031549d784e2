//! The cached forms of revisions, claims, and objects that are kept whole, such as workloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use crate::runtime::control::{Control, control};
use crate::runtime::memory;
use crate::runtime::request::to_bytes;
use crate::runtime::store::{Cached, Head};
use crate::runtime::watch::{Object, version_number};
use gamekeeper_core::api::names;
use gamekeeper_core::api::{GameWorkload, HookRun, HookTemplate, JsonText};
use gamekeeper_core::observed::{Claim, ClaimOwner};
use gamekeeper_core::revision::recorded_template;
use gamekeeper_core::workload::{Revision, managed_fields_to_keep};

/// A whole object, with the metadata that the cache needs.
#[derive(Clone, Debug)]
pub struct Whole<K> {
    /// The object.
    pub object: Arc<K>,
    namespace: String,
    name: String,
    uid: String,
    version: u64,
    controller: Option<String>,
    /// The length of its text, in bytes.
    length: usize,
    /// The memory of its lists beyond that, in bytes.
    lists: usize,
}

impl<K: Resource<DynamicType = ()>> Whole<K> {
    /// Keeps the whole object, but without its managed fields if `drop_managed_fields` is set, and otherwise with those
    /// that a plan reads.
    pub fn new(mut object: K, drop_managed_fields: bool) -> Self {
        let fields = object.meta_mut().managed_fields.take();
        let fields = fields.filter(|_| !drop_managed_fields);
        object.meta_mut().managed_fields = fields.map(managed_fields_to_keep);
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: version_number(meta.resource_version.as_deref().unwrap_or_default()),
            controller: names::controller_of(meta).map(|owner| owner.uid.clone()),
            length: 0,
            lists: 0,
            object: Arc::new(object),
        }
    }

    /// Records how long the object's text is, and how much memory its lists take.
    fn with_size(self, length: usize, lists: usize) -> Self {
        Self { length, lists, ..self }
    }
}

impl<K> Cached for Whole<K>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    fn head(&self) -> Head<'_> {
        Head {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            version: self.version,
            terminating: self.object.meta().deletion_timestamp.is_some(),
            controller: self.controller.as_deref(),
        }
    }

    /// Arbitrary JSON is kept as text.
    fn memory(&self) -> usize {
        let text = self.length * 3 / 2;
        size_of::<K>() + text + self.lists + memory::of_metadata(self.object.meta())
    }
}

/// The cached form of a HookRun.
pub type CachedHookRun = Whole<HookRun>;

/// Converts a HookRun to its cached form, and frees the spare capacity of its lists.
pub fn slim_run(mut run: HookRun) -> CachedHookRun {
    run.spec.metrics.shrink_to_fit();
    run.spec.args.shrink_to_fit();
    if let Some(status) = &mut run.status {
        status.metric_results.shrink_to_fit();
        for result in &mut status.metric_results {
            result.measurements.shrink_to_fit();
        }
    }
    Whole::new(run, true)
}

/// Memory that a workload or revision may take, in bytes. Its pod template is kept as maps, in which a thousand
/// environment variables take 1 MB; the managed fields for them take 2 MB more.
pub(super) const MAX_TEMPLATE_BYTES: usize = 16 << 20;
/// Memory that a HookTemplate or HookRun may take while it is parsed. The cached form takes little more than
/// the JSON text.
pub(super) const MAX_HOOK_BYTES: usize = 64 << 20;

/// Parses a workload. Its managed fields are kept: they show who set `paused`.
///
/// # Errors
/// If it cannot be decoded, or would take too much memory.
pub fn read_workload<K: GameWorkload>(object: Object<'_>) -> Result<Whole<K>, serde_json::Error> {
    let workload: K = object.read_within(MAX_TEMPLATE_BYTES)?;
    let steps = workload.canary().map_or(0, memory::of_steps);
    Ok(Whole::new(workload, false).with_size(object.length(), steps))
}

/// Parses a HookRun.
///
/// # Errors
/// If it cannot be decoded, or would take too much memory.
pub fn read_run(object: Object<'_>) -> Result<CachedHookRun, serde_json::Error> {
    Ok(run_of_length(object.read_within(MAX_HOOK_BYTES)?, object.length()))
}

/// The cached form of a HookRun that is not stored.
pub(super) fn sized_run(run: HookRun) -> CachedHookRun {
    let length = to_bytes(&run).len();
    run_of_length(run, length)
}

fn run_of_length(run: HookRun, length: usize) -> CachedHookRun {
    let run = slim_run(run);
    let HookRun { spec, status, .. } = &*run.object;
    let results = status.as_ref().map_or(0, memory::of_results);
    let lists = memory::of_hook(&spec.args, &spec.metrics) + results;
    run.with_size(length, lists)
}

/// Parses a HookTemplate.
///
/// # Errors
/// If it cannot be decoded, or would take too much memory.
pub fn read_hook_template(object: Object<'_>) -> Result<Whole<HookTemplate>, serde_json::Error> {
    let mut template: HookTemplate = object.read_within(MAX_HOOK_BYTES)?;
    template.spec.metrics.shrink_to_fit();
    template.spec.args.shrink_to_fit();
    let lists = memory::of_hook(&template.spec.args, &template.spec.metrics);
    Ok(Whole::new(template, true).with_size(object.length(), lists))
}

/// A ControllerRevision whose data are not parsed.
#[derive(Debug, Deserialize)]
pub struct StoredRevision {
    metadata: ObjectMeta,
    #[serde(default)]
    data: JsonText,
    #[serde(default)]
    revision: i64,
}

/// The cached form of a ControllerRevision.
#[derive(Clone, Debug)]
pub struct CachedRevision {
    /// What a plan reads.
    pub(crate) revision: Arc<Revision>,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
    namespace: String,
    version: u64,
    controller: Option<String>,
    terminating: bool,
}

impl CachedRevision {
    /// The cached form of a revision; None if another controller owns it.
    pub fn new(object: StoredRevision) -> Option<Self> {
        let controller = match control(&object.metadata) {
            Control::Ours(uid) => Some(uid),
            Control::None => None,
            Control::Foreign => return None,
        };
        let meta = object.metadata;
        Some(Self {
            revision: Arc::new(Revision {
                name: meta.name.unwrap_or_default(),
                uid: meta.uid.unwrap_or_default(),
                number: object.revision,
                template: recorded_template(&object.data),
                controlled: controller.is_some(),
            }),
            labels: meta.labels.unwrap_or_default(),
            namespace: meta.namespace.unwrap_or_default(),
            version: version_number(&meta.resource_version.unwrap_or_default()),
            controller,
            terminating: meta.deletion_timestamp.is_some(),
        })
    }
}

impl Cached for CachedRevision {
    fn memory(&self) -> usize {
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| key.len() + value.len() + 96);
        self.revision.template.text().len() + labels.sum::<usize>() + 1_024
    }

    fn head(&self) -> Head<'_> {
        Head {
            namespace: &self.namespace,
            name: &self.revision.name,
            uid: &self.revision.uid,
            version: self.version,
            terminating: self.terminating,
            controller: self.controller.as_deref(),
        }
    }
}

/// The cached form of a claim.
pub(crate) fn slim_claim(claim: ClaimHead) -> Claim {
    let meta = claim.metadata;
    let owners = meta.owner_references.unwrap_or_default().into_iter();
    let owners = owners.map(|owner| ClaimOwner {
        kind: owner.kind,
        name: owner.name,
        uid: owner.uid,
        controller: owner.controller == Some(true),
    });
    Claim {
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        resource_version: version_number(&meta.resource_version.unwrap_or_default()),
        terminating: meta.deletion_timestamp.is_some(),
        owners: owners.collect(),
    }
}

/// A claim as a PartialObjectMetadata.
#[derive(Debug, Deserialize)]
pub(crate) struct ClaimHead {
    metadata: ObjectMeta,
}

impl Cached for Claim {
    fn memory(&self) -> usize {
        memory::of_claim(self)
    }

    fn head(&self) -> Head<'_> {
        Head {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            version: self.resource_version,
            terminating: self.terminating,
            controller: Claim::controller(self),
        }
    }

    /// The prefix of the claim's name, if the name ends in an ordinal, and the uids of the claim's owners.
    fn index_keys(&self) -> Vec<String> {
        let prefix = names::split_ordinal(&self.name).map(|(prefix, _)| prefix);
        let owners = self.owners.iter().map(|owner| owner.uid.as_str());
        prefix.into_iter().chain(owners).map(str::to_owned).collect()
    }
}
