//! The names of kinds and workloads: `game`, `gd/game`, `gamestatefulsets world`, or, as kubectl prints them,
//! `gamedeployment.tkex.tencent.com/game`.

use std::fmt;

use gamekeeper_core::api::GROUP;
use gamekeeper_core::api::names::WorkloadKind;

use crate::error::Error;
use crate::suggest::closest;

/// The names of the kind Cluster.
pub const CLUSTER_KINDS: [&str; 2] = ["cluster", "clusters"];
/// The names of the kind Pod.
pub const POD_KINDS: [&str; 3] = ["pod", "pods", "po"];
/// The names of the kind SidecarSet, the short one first.
pub const SIDECAR_SET_KINDS: [&str; 3] = ["scs", "sidecarset", "sidecarsets"];

pub fn singular(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::GameDeployment => "gamedeployment",
        WorkloadKind::GameStatefulSet => "gamestatefulset",
    }
}

/// The name of an object as kubectl prints it.
pub fn full_name(kind: WorkloadKind, name: &str) -> String {
    format!("{}.{GROUP}/{name}", singular(kind))
}

/// The name of an object as users type it.
pub fn short_name(kind: WorkloadKind, name: &str) -> String {
    format!("{}/{name}", kind.short())
}

/// Parses any name of a kind.
pub fn parse_kind(word: &str) -> Result<WorkloadKind, Error> {
    let lower = word.to_lowercase();
    // A name may be qualified: gamedeployments.v1alpha1.tkex.tencent.com.
    let resource = lower.split('.').next().unwrap_or_default();
    let is_called = |kind: &WorkloadKind| {
        let singular = singular(*kind);
        resource == kind.short() || resource.strip_suffix('s').unwrap_or(resource) == singular
    };
    if let Some(kind) = WorkloadKind::ALL.into_iter().find(is_called) {
        return Ok(kind);
    }
    let native =
        [("deploy", "Deployments"), ("sts", "StatefulSets"), ("statefulset", "StatefulSets")];
    if let Some((_, native)) = native.iter().find(|(it, _)| resource.starts_with(it)) {
        return Err(Error::Usage(format!(
            "kubectl game does not manage {native}: use kubectl rollout for them, and gd/NAME or gsts/NAME here"
        )));
    }
    let others = [
        (CLUSTER_KINDS.as_slice(), "a Cluster supports only status, tree, pause, resume and retry"),
        (
            &SIDECAR_SET_KINDS,
            "a SidecarSet supports only get, status, tree, history, pause, resume and undo",
        ),
    ];
    if let Some((_, message)) = others.iter().find(|(kinds, _)| kinds.contains(&resource)) {
        return Err(Error::Usage((*message).to_owned()));
    }
    let known = WorkloadKind::ALL.iter().flat_map(|kind| [kind.short(), singular(*kind)]);
    let hint = match closest(resource, known) {
        Some(near) => format!("did you mean {near}?"),
        None => "write gd (GameDeployment) or gsts (GameStatefulSet)".to_owned(),
    };
    Err(Error::Usage(format!("unknown kind {word:?}: {hint}")))
}

/// The name in `KIND/NAME` or `KIND NAME`, if the kind is one of these.
pub fn name_after<'a>(words: &'a [String], kinds: &[&str]) -> Option<&'a str> {
    let (kind, name) = match words {
        [word] => word.split_once('/')?,
        [kind, name] => (kind.as_str(), name.as_str()),
        _ => return None,
    };
    is_kind(kind, kinds).then_some(name)
}

/// Each of the names in `NAME ...`, `KIND/NAME ...` or `KIND NAME ...`, with its kind if there is one.
///
/// # Errors
/// If the first of several words is nearly the name of a kind.
pub fn each_name(words: &[String]) -> Result<Vec<String>, Error> {
    let is_kind = |word: &str| {
        let others = CLUSTER_KINDS.iter().chain(&SIDECAR_SET_KINDS).chain(&POD_KINDS);
        let others: Vec<&str> = others.copied().collect();
        parse_kind(word).is_ok() || self::is_kind(word, &others)
    };
    match words {
        [kind, names @ ..] if !names.is_empty() && is_kind(kind) => {
            Ok(names.iter().map(|name| format!("{kind}/{name}")).collect())
        }
        [word, _, ..] if closest(word, WorkloadKind::ALL.map(singular)).is_some() => {
            Err(parse_kind(word).err().unwrap_or_else(|| Error::Usage(word.clone())))
        }
        _ => Ok(words.to_vec()),
    }
}

/// Whether a word is one of these names of a kind. It may be qualified by a group and a version.
pub fn is_kind(word: &str, kinds: &[&str]) -> bool {
    let resource = word.split('.').next().unwrap_or_default().to_lowercase();
    kinds.contains(&resource.as_str())
}

/// A workload as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Any kind if None.
    pub kind: Option<WorkloadKind>,
    pub name: String,
}

impl Reference {
    /// Parses `NAME`, `KIND/NAME` or `KIND NAME`.
    pub fn parse(words: &[String]) -> Result<Self, Error> {
        let (kind, name) = match words {
            [word] => match word.split_once('/') {
                Some((kind, name)) => (Some(parse_kind(kind)?), name),
                None => (None, word.as_str()),
            },
            [kind, name] => (Some(parse_kind(kind)?), name.as_str()),
            [] => {
                return Err(Error::Usage(
                    "name a workload: gd/NAME, gsts/NAME, or NAME".to_owned(),
                ));
            }
            [_, _, more, ..] => {
                return Err(Error::Usage(format!(
                    "expected one workload: unexpected argument {more:?}"
                )));
            }
        };
        if name.is_empty() || name.contains('/') {
            return Err(Error::Usage(format!(
                "{:?} is not a workload: write gd/NAME, gsts/NAME, or NAME",
                words.join(" ")
            )));
        }
        Ok(Self { kind, name: name.to_owned() })
    }

    pub fn kinds(&self) -> Vec<WorkloadKind> {
        self.kind.map_or_else(|| WorkloadKind::ALL.to_vec(), |kind| vec![kind])
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.kinds().into_iter().map(WorkloadKind::as_str).collect();
        write!(f, "{} {:?}", kinds.join(" or "), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        Reference::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_of_a_name_that_kubectl_accepts_is_accepted() {
        let deployment = Some(WorkloadKind::GameDeployment);
        for (text, kind) in [
            ("game", None),
            ("gd/game", deployment),
            ("gd game", deployment),
            ("GameDeployment/game", deployment),
            ("gamedeployments game", deployment),
            ("gamedeployment.tkex.tencent.com/game", deployment),
            ("gamedeployments.v1alpha1.tkex.tencent.com/game", deployment),
            ("gsts/game", Some(WorkloadKind::GameStatefulSet)),
        ] {
            let expected = Reference { kind, name: "game".to_owned() };
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn several_names_may_have_one_kind() {
        for (text, expected) in [
            ("game", "game"),
            ("game world", "game world"),
            ("gd/game gsts/world", "gd/game gsts/world"),
            ("gd game lobby", "gd/game gd/lobby"),
            ("pod a", "pod/a"),
            ("gd", "gd"),
        ] {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(each_name(&words).expect("names").join(" "), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_name_is_an_error_that_suggests_a_fix() {
        for (text, words) in [
            ("gamedeploymnt/game", "did you mean gamedeployment?"),
            ("deploy/game", "use kubectl rollout"),
            ("pod/game", "write gd (GameDeployment) or gsts"),
            ("cluster/xa", "a Cluster supports only status, tree, pause, resume and retry"),
            ("gd/", "is not a workload"),
            ("gd game other", "expected one workload"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
