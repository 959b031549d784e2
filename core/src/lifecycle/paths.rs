//! Which source a file is read from, and where that source is mounted in the container.

use crate::api::{ClusterFeatures, FileSource};

/// The directory in the container under which the sources are mounted.
const SOURCES: &str = "/sources";

/// Where a file is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin<'a> {
    /// The volume.
    pub volume: Volume<'a>,
    /// The path in the volume; empty for the whole volume.
    pub path: &'a str,
}

/// A volume that files are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Volume<'a> {
    /// A ConfigMap.
    ConfigMap(&'a str),
    /// A PersistentVolumeClaim.
    Claim(&'a str),
}

/// Where `src` is read from: the source with the longest matching path. If none matches, the first part of `src` is
/// the name of a ConfigMap.
pub(super) fn origin<'a>(features: &'a ClusterFeatures, src: &'a str) -> Origin<'a> {
    let matching = |source: &'a FileSource| {
        let rest = src.strip_prefix(&source.path)?;
        match rest {
            "" => Some((source, rest)),
            rest => Some((source, rest.strip_prefix('/')?)),
        }
    };
    let matches = features.sources.iter().filter_map(matching);
    if let Some((source, path)) = matches.max_by_key(|(source, _)| source.path.len())
        && let Some(volume) = volume(source)
    {
        return Origin { volume, path };
    }
    let (name, path) = src.split_once('/').unwrap_or((src, ""));
    Origin { volume: Volume::ConfigMap(name), path }
}

fn volume(source: &FileSource) -> Option<Volume<'_>> {
    let config_map = source.config_map.as_ref();
    let claim = source.persistent_volume_claim.as_ref();
    let config_map = config_map.map(|it| Volume::ConfigMap(&it.name));
    config_map.or_else(|| claim.map(|it| Volume::Claim(&it.claim_name)))
}

/// Where a volume is mounted. Error messages of the script show this path, so it names the volume.
pub(super) fn mount(volume: &Volume) -> String {
    match volume {
        Volume::ConfigMap(name) => format!("{SOURCES}/configmap-{name}"),
        Volume::Claim(name) => format!("{SOURCES}/claim-{name}"),
    }
}

/// Whether a hook's program (its first word) is a file's dst, or is directly inside it.
pub(super) fn is_copied(features: &ClusterFeatures, program: &str) -> bool {
    let mut files = features.files.iter();
    files.any(|file| {
        let parent = program.rsplit_once('/').map(|(parent, _)| parent);
        program == file.dst || parent == Some(&file.dst)
    })
}
