//! Candidates for kubectl's own completion (`kubectl game <TAB>`).
//!
//! kubectl runs `kubectl_complete-game` with the words typed so far. It expects one candidate per line, and a last
//! line that says whether the shell completes file names.

use clap::{Arg, Args, Command, FromArgMatches, ValueHint};

use crate::options::ClusterOptions;

/// The candidates for the last word.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    Words(Vec<String>),
    /// All names of workloads.
    Workload,
    /// All names of workloads and SidecarSets.
    WorkloadOrSet,
    /// The pods that can be moved, and their nodes.
    PodOrNode,
    /// The guarded pods, and all names of workloads.
    GuardedPodOrWorkload,
    /// Names of files, which the shell completes.
    File,
}

impl Wanted {
    /// The last line for kubectl.
    pub fn directive(&self) -> &'static str {
        match self {
            // cobra's ShellCompDirectiveDefault
            Wanted::File => ":0",
            // cobra's ShellCompDirectiveNoFileComp
            _ => ":4",
        }
    }
}

/// The commands that accept a SidecarSet.
const SET_COMMANDS: [&str; 7] = ["get", "tree", "status", "pause", "resume", "history", "undo"];

/// The candidates for the last of these words.
pub fn wanted(root: &Command, words: &[String]) -> Wanted {
    let (last, before) =
        words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut command = root;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let preceding_option = before.last().and_then(|word| option(root, command, word));
    let matching = |words: Vec<String>| {
        let words = words.into_iter().filter(|word| word.starts_with(last));
        Wanted::Words(words.collect())
    };
    let is_file = |arg: &Arg| arg.get_value_hint() == ValueHint::AnyPath;
    let values = |arg: &Arg| {
        let values = arg.get_possible_values().into_iter();
        values.map(|it| it.get_name().to_owned()).collect()
    };
    if let Some(option) = preceding_option {
        return match is_file(option) {
            true => Wanted::File,
            false => matching(values(option)),
        };
    }
    if last.starts_with('-') {
        let options = arguments(root, command).filter_map(long);
        return matching(options.collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        return matching(shown.map(|it| it.get_name().to_owned()).collect());
    }
    match command.get_positionals().next() {
        Some(arg) if is_file(arg) => Wanted::File,
        Some(arg) if arg.get_possible_values().is_empty() => match command.get_name() {
            "move" => Wanted::PodOrNode,
            "release" => Wanted::GuardedPodOrWorkload,
            name if SET_COMMANDS.contains(&name) => Wanted::WorkloadOrSet,
            _ => Wanted::Workload,
        },
        Some(arg) => matching(values(arg)),
        None => Wanted::Words(Vec::new()),
    }
}

/// The options of a command and the global ones.
fn arguments<'a>(root: &'a Command, command: &'a Command) -> impl Iterator<Item = &'a Arg> {
    command.get_arguments().chain(root.get_arguments())
}

fn long(option: &Arg) -> Option<String> {
    option.get_long().map(|name| format!("--{name}"))
}

/// The option that this word names, if it takes a value.
fn option<'a>(root: &'a Command, command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is_match = |arg: &&Arg| {
        let short = arg.get_short().map(|name| format!("-{name}"));
        let is_named = [long(arg), short].into_iter().flatten().any(|it| it == word);
        is_named && arg.get_action().takes_values()
    };
    arguments(root, command).find(is_match)
}

/// The options among these words that select the cluster.
pub fn cluster_options(words: &[String]) -> ClusterOptions {
    let command = Command::new("complete").no_binary_name(true).ignore_errors(true);
    let command = ClusterOptions::augment_args(command).arg(Arg::new("rest").num_args(0..));
    let matches = command.try_get_matches_from(words).ok();
    let options = matches.and_then(|matches| ClusterOptions::from_arg_matches(&matches).ok());
    options.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::options::Cli;

    fn candidates(line: &str) -> Wanted {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(&Cli::command(), &words)
    }

    fn words(words: &[&str]) -> Wanted {
        Wanted::Words(words.iter().map(|it| (*it).to_owned()).collect())
    }

    #[test]
    fn commands_options_values_and_workloads_are_completed() {
        assert_eq!(candidates("re"), words(&["resume", "retry", "release", "restart"]));
        assert_eq!(candidates("set i"), words(&["image"]));
        assert_eq!(candidates("status --ti"), words(&["--timeout"]));
        assert_eq!(candidates("get -o "), words(&["wide", "json", "yaml", "name"]));
        assert_eq!(candidates("completion z"), words(&["zsh"]));
        assert_eq!(candidates("tree "), Wanted::WorkloadOrSet);
        assert_eq!(candidates("get s"), Wanted::WorkloadOrSet);
        assert_eq!(candidates("undo "), Wanted::WorkloadOrSet);
        assert_eq!(candidates("hooks --failed "), Wanted::Workload);
        assert_eq!(candidates("tree --all"), words(&["--all-pods"]));
        assert_eq!(candidates("get --as"), words(&["--as", "--as-group"]));
        assert_eq!(candidates("resume -n prod ga"), Wanted::WorkloadOrSet);
        assert_eq!(candidates("promote -n prod ga"), Wanted::Workload);
        assert_eq!(candidates("get --namespace "), words(&[]));
        assert_eq!(candidates("move "), Wanted::PodOrNode);
        assert_eq!(candidates("release "), Wanted::GuardedPodOrWorkload);
        assert_eq!(candidates("lint --strict a.yaml b"), Wanted::File);
        assert_eq!(candidates("get --kubeconfig "), Wanted::File);
    }

    #[test]
    fn names_come_from_the_cluster_given_on_the_command_line() {
        let line = ["tree", "-n", "prod", "--context", "eu", ""].map(str::to_owned);
        let options = cluster_options(&line);
        assert_eq!(options.namespace.as_deref(), Some("prod"));
        assert_eq!(options.context.as_deref(), Some("eu"));
    }
}
