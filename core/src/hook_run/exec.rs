//! Commands in containers: the limits and messages that admission and measurements have in common.

use std::collections::BTreeSet;

/// Maximum total length, in bytes, of a command's elements with their arguments filled in. The command is
/// part of a URL of at most 64 KiB, in which each byte may take three characters.
pub const MAX_COMMAND: usize = 16 << 10;
/// Why a canary step cannot run a command.
pub const STEP_HAS_NO_POD: &str = "a canary step concerns no pod, so there is no container to run \
                                  the command in: use provider job";
/// Why a Secret cannot be part of a command.
pub const SECRET_IN_COMMAND: &str = "a secret argument would be readable in the audit log: pass the \
                                     Secret to the container with env or a volume";

/// Why something is refused, and the value of the chart with which an administrator can allow it.
pub fn allowed_by(refusal: &str, setting: &str) -> String {
    format!("{refusal}: an administrator can allow it with the chart's value {setting}")
}

/// The namespaces in which hooks may run commands in containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecNamespaces(BTreeSet<String>);

impl ExecNamespaces {
    /// Checks that hooks may run commands in a namespace.
    ///
    /// # Errors
    /// If they may not. The message names the chart value that allows commands.
    pub fn check(&self, namespace: &str) -> Result<(), String> {
        match self.0.contains(namespace) {
            true => Ok(()),
            false => Err(allowed_by(
                &format!("hooks must not run commands in namespace {namespace}"),
                "hooks.exec",
            )),
        }
    }
}

impl<T: Into<String>> FromIterator<T> for ExecNamespaces {
    fn from_iter<I: IntoIterator<Item = T>>(namespaces: I) -> Self {
        ExecNamespaces(namespaces.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_refused_unless_their_namespace_is_listed() {
        let namespaces = ExecNamespaces::from_iter(["games"]);
        assert_eq!(namespaces.check("games"), Ok(()));
        for (namespaces, namespace) in
            [(&namespaces, "game"), (&namespaces, ""), (&ExecNamespaces::default(), "games")]
        {
            let why = namespaces.check(namespace).expect_err("a refusal");
            assert!(why.ends_with("the chart's value hooks.exec"), "{why}");
        }
    }
}
