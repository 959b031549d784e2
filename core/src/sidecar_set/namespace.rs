//! In which namespaces pods get sidecars.

use std::collections::BTreeMap;

use crate::api::names::SIDECARS_LABEL;

/// The parts of a namespace on which SidecarSets depend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// The operator's settings about namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespacePolicy {
    /// The operator's own namespace, if it is known. Pods in it get no sidecars unless a set names the namespace: while
    /// the operator is down, its own pods must not wait for its webhook.
    pub own: Option<String>,
    /// Whether pods of other controllers get sidecars in all namespaces that are not labeled `disabled`, instead of
    /// only in those labeled `enabled`.
    pub all: bool,
}

impl Namespace {
    /// Whether no pod in the namespace gets sidecars.
    pub(super) fn is_closed(&self) -> bool {
        self.name.starts_with("kube-") || self.label() == Some("disabled")
    }

    /// Whether pods of other controllers in the namespace get sidecars, too.
    pub fn is_open_to_all(&self, policy: &NamespacePolicy) -> bool {
        !self.is_closed() && (policy.all || self.label() == Some("enabled"))
    }

    fn label(&self) -> Option<&str> {
        self.labels.get(SIDECARS_LABEL).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_other_controllers_get_sidecars_in_labeled_namespaces_or_in_all() {
        for (name, label, labeled, all) in [
            ("web", Some("enabled"), true, true),
            ("web", None, false, true),
            ("web", Some("other"), false, true),
            ("web", Some("disabled"), false, false),
            ("kube-system", Some("enabled"), false, false),
            ("kube-system", None, false, false),
        ] {
            let labels = label.map(|it| (SIDECARS_LABEL.to_owned(), it.to_owned()));
            let namespace =
                Namespace { name: name.to_owned(), labels: labels.into_iter().collect() };
            let is_open = |all| {
                namespace.is_open_to_all(&NamespacePolicy { all, ..NamespacePolicy::default() })
            };
            assert_eq!((is_open(false), is_open(true)), (labeled, all), "{name} {label:?}");
        }
    }
}
