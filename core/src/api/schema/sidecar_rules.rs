//! CEL rules on SidecarSets.

use kube::core::Rule;

use super::rules::rule;

/// Maximum length of an annotation's name, without its prefix.
const MAX_ANNOTATION_NAME: usize = 63;

/// The name becomes part of the key of an annotation. As for workloads, the rule applies on create only.
pub(crate) fn sidecar_set_name() -> Rule {
    rule(
        "",
        format!("oldSelf.hasValue() || size(self.metadata.name) <= {MAX_ANNOTATION_NAME}"),
        format!(
            "metadata.name must be no longer than {MAX_ANNOTATION_NAME} characters, because it becomes the name of \
             an annotation of pods"
        ),
    )
    .optional_old_self(true)
}

/// A set has containers, selects namespaces in only one way, and names no `kube-` namespace.
pub(crate) fn sidecar_set_rules() -> Vec<Rule> {
    vec![
        rule(
            "",
            "(has(self.containers) && size(self.containers) > 0) || \
             (has(self.initContainers) && size(self.initContainers) > 0)",
            "has no container; add containers or initContainers",
        ),
        rule(
            "namespaceSelector",
            "!(has(self.__namespace__) && has(self.namespaceSelector))",
            "is set together with namespace; keep one of the two",
        ),
        rule(
            "namespace",
            "!has(self.__namespace__) || !self.__namespace__.startsWith('kube-')",
            "takes no sidecars, because the cluster depends on its pods; name another namespace",
        ),
    ]
}

/// The pods to update are chosen in only one way.
pub(crate) fn sidecar_update_rules() -> Vec<Rule> {
    vec![rule(
        "partition",
        "!(has(self.partition) && has(self.selector)) || \
         (type(self.partition) in [int] ? int(self.partition) == 0 : self.partition in ['0%'])",
        "must be 0 together with selector; keep one of the two",
    )]
}

/// OpenKruise settings that are refused: if they were ignored, the container would run without what they specify.
pub(crate) fn sidecar_container_rules() -> Vec<Rule> {
    vec![
        rule(
            "resourcesPolicy",
            "!has(self.resourcesPolicy)",
            "is not supported, and ignoring it would start the container without limits; write resources",
        ),
        rule(
            "shareVolumeDevicePolicy",
            "!has(self.shareVolumeDevicePolicy)",
            "is not supported; list the devices of the container in volumeDevices",
        ),
    ]
}

/// A revision is chosen by its name alone.
pub(crate) fn revision_by_name() -> Rule {
    rule(
        "customVersion",
        "!has(self.customVersion)",
        "is not supported; write the name of a revision in revisionName",
    )
}

/// Only ColdUpgrade is supported: HotUpgrade would need a second container with an idle image.
pub(crate) fn cold_upgrade() -> Rule {
    rule("", "self == 'ColdUpgrade'", "is not supported; write ColdUpgrade")
}

/// Only Retain and Overwrite are supported: MergePatchJson would merge the values of several sets into
/// one annotation.
pub(super) fn retain_or_overwrite() -> Rule {
    rule("", "self in ['Retain', 'Overwrite']", "is not supported; write Retain or Overwrite")
}

/// Only Always is supported: Partial would need the pods of two revisions in a fixed proportion.
pub(crate) fn policy_always() -> Rule {
    rule("", "self == 'Always'", "is not supported; write Always")
}
