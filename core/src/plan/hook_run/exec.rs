//! Commands in containers: what admission refuses and a measurement met anyway fails with, in the same
//! words.

use std::collections::BTreeSet;

/// Longest command with its arguments filled in, all elements together, in bytes. It is part of a URL,
/// which may have 64 KiB, and each byte may take three there.
pub const MAX_COMMAND: usize = 16 << 10;
/// Why a canary step cannot run a command.
pub const NO_POD_OF_STEP: &str = "a canary step concerns no pod, so there is no container to run \
                                  the command in: use provider job";
/// Why a Secret cannot be part of a command.
pub const SECRET_IN_COMMAND: &str = "a secret argument would be readable in the audit log: pass the \
                                     Secret to the container with env or a volume";

/// The namespaces in which hooks may run commands in containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecNamespaces(BTreeSet<String>);

impl ExecNamespaces {
    /// Checks that hooks may run commands in a namespace.
    ///
    /// # Errors
    /// Says that they may not, and which value of the chart allows it.
    pub fn check(&self, namespace: &str) -> Result<(), String> {
        match self.0.contains(namespace) {
            true => Ok(()),
            false => Err(format!(
                "hooks must not run commands in namespace {namespace}: an administrator can allow \
                 it with the chart's value hooks.exec"
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
    fn commands_are_refused_unless_their_namespace_is_named() {
        let namespaces = ExecNamespaces::from_iter(["games"]);
        assert_eq!(namespaces.check("games"), Ok(()));
        for (namespaces, namespace) in [
            (&namespaces, "game"),
            (&namespaces, ""),
            (&ExecNamespaces::default(), "games"),
        ] {
            let why = namespaces.check(namespace).expect_err("it is off");
            assert!(why.ends_with("the chart's value hooks.exec"), "{why}");
        }
    }
}
