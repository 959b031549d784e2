//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::observed::time::parse_duration;
use jiff::SignedDuration;

/// Show and control rollouts of GameDeployments, GameStatefulSets and SidecarSets.
///
/// A workload is NAME, gd/NAME or gsts/NAME; without a kind, both kinds are searched. A SidecarSet is scs/NAME.
#[derive(Parser)]
#[command(name = "kubectl-game", bin_name = "kubectl game", version)]
pub struct Cli {
    #[command(flatten)]
    pub cluster: ClusterOptions,
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster and namespace.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Namespace; the context's when absent.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Path of the kubeconfig; KUBECONFIG or ~/.kube/config when absent.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig, instead of the context's.
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig, instead of the context's.
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// Act as this user: a person, or system:serviceaccount:NAMESPACE:NAME.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Act as a member of this group; may be repeated.
    #[arg(long, global = true, value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// Timeout of a request, such as 5s; 0 means none.
    #[arg(long, global = true, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub request_timeout: SignedDuration,
}

impl ClusterOptions {
    /// Those that reach the cluster, as they are typed, each with a leading space. The namespace is not among them:
    /// commands name that of their object.
    pub fn as_typed(&self) -> String {
        let kubeconfig = self.kubeconfig.as_ref().map(|it| it.display().to_string());
        let single = [
            ("context", &self.context),
            ("kubeconfig", &kubeconfig),
            ("cluster", &self.cluster),
            ("user", &self.user),
            ("as", &self.as_user),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let groups = self.as_group.iter().map(|group| ("as-group", group));
        let typed =
            single.chain(groups).map(|(name, value)| format!(" --{name} {}", quoted(value)));
        typed.collect()
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:@=+,%".contains(it);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The timeout that an option sets; zero means none.
pub fn limit(wait: SignedDuration) -> Option<Duration> {
    let wait = Duration::try_from(wait).ok()?;
    (!wait.is_zero()).then_some(wait)
}

/// A duration, or a number of seconds, as in kubectl.
fn seconds(word: &str) -> Result<SignedDuration, String> {
    match word.parse::<u32>() {
        Ok(seconds) => Ok(SignedDuration::from_secs(seconds.into())),
        Err(_) => parse_duration(word),
    }
}

#[derive(Args, Clone, Debug)]
pub struct Workload {
    /// NAME, gd/NAME or gsts/NAME.
    #[arg(value_name = "WORKLOAD", required = true, num_args = 1..)]
    pub words: Vec<String>,
}

/// Where the page is served, and what it opens with.
#[derive(Args, Clone, Debug)]
pub struct ViewOptions {
    /// The workload to open; the fleet when absent.
    #[arg(value_name = "WORKLOAD")]
    pub workload: Vec<String>,
    /// All namespaces that you may list, even with -n.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// The port on 127.0.0.1; 0 means any free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Print the address only.
    #[arg(long)]
    pub no_open: bool,
}

#[derive(Args, Clone, Debug)]
pub struct WriteOptions {
    /// Submit the change as a server-side dry run; `--dry-run=server` and `--dry-run=none` as in kubectl.
    #[arg(long, value_name = "server|none", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "server", value_parser = dry_run)]
    pub dry_run: bool,
    /// Print the changed object.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
}

/// Which pods to move.
#[derive(Args, Clone, Debug)]
pub struct MoveOptions {
    /// pod/NAME or node/NAME.
    #[arg(value_name = "POD or NODE", required = true, num_args = 1..)]
    pub words: Vec<String>,
    /// All pods on the node, in all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Cancel the move of these pods.
    #[arg(long, conflicts_with = "wait")]
    pub cancel: bool,
    /// Wait until these pods are gone, for example before the machine is switched off.
    #[arg(long)]
    pub wait: bool,
    /// Timeout of --wait, such as 90s or 2h; 0 means none.
    #[arg(long, default_value = "0", value_parser = parse_duration, requires = "wait")]
    pub timeout: SignedDuration,
    /// Submit the change as a server-side dry run; `--dry-run=server` and `--dry-run=none` as in kubectl.
    #[arg(long, value_name = "server|none", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "none", default_missing_value = "server", value_parser = dry_run)]
    pub dry_run: bool,
}

/// The options of a change.
#[derive(Args, Clone, Debug)]
pub struct ChangeOptions {
    /// NAME, gd/NAME or gsts/NAME; several are changed one after another.
    #[arg(value_name = "WORKLOAD", required_unless_present_any = ["selector", "all"])]
    pub words: Vec<String>,
    /// Change all workloads with this label selector.
    #[arg(short = 'l', long, conflicts_with_all = ["words", "all"])]
    pub selector: Option<String>,
    /// Change all workloads of the namespace.
    #[arg(long, conflicts_with = "words")]
    pub all: bool,
    #[command(flatten)]
    pub write: WriteOptions,
}

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// Their names.
    Name,
}

/// What to list.
#[derive(Args, Clone, Debug)]
pub struct GetOptions {
    /// A workload; all of them when absent. gd, gsts or scs alone lists that kind.
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// In all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Label selector, such as app=game,tier!=test.
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// Only those that are not complete, with what they wait for.
    #[arg(long)]
    pub problems: bool,
    /// Print the table again whenever it changes.
    #[arg(short, long)]
    pub watch: bool,
    /// Without the line of headings.
    #[arg(long)]
    pub no_headers: bool,
    /// Print the objects; wide adds what each workload waits for.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<ListOutput>,
}

/// What `get` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListOutput {
    /// The table with more columns.
    Wide,
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// Their names.
    Name,
}

impl ListOutput {
    /// How objects are printed; None for a table.
    pub fn of_objects(self) -> Option<Output> {
        match self {
            Self::Wide => None,
            Self::Json => Some(Output::Json),
            Self::Yaml => Some(Output::Yaml),
            Self::Name => Some(Output::Name),
        }
    }
}

const STATUS_EXIT_CODES: &str = "\
Exit codes:
  0  the rollout is complete
  1  error; with --watch: also if the cluster never responded before the timeout
  2  the rollout is stopped until a user acts: paused, or blocked by a failed hook, a rejected template, ...
  3  the rollout is in progress; with --watch: still in progress at the timeout";

const LINT_EXIT_CODES: &str = "\
Exit codes:
  0  no errors
  1  something would be rejected
  2  a file cannot be read";

#[derive(Subcommand)]
pub enum Command {
    /// List workloads, or SidecarSets.
    #[command(visible_alias = "list")]
    Get(GetOptions),
    /// Show a workload, its revisions, pods and HookRuns; or a SidecarSet and its pods.
    Tree {
        #[command(flatten)]
        workload: Workload,
        /// Watch for changes until interrupted.
        #[arg(short, long)]
        watch: bool,
        /// Show all pods, however many there are.
        #[arg(long)]
        all_pods: bool,
        /// Print the tree as an object.
        #[arg(short, long, value_name = "FORMAT", conflicts_with = "watch")]
        output: Option<Output>,
    },
    /// Show the state of a rollout, or why it is blocked.
    #[command(after_help = STATUS_EXIT_CODES)]
    Status {
        #[command(flatten)]
        workload: Workload,
        /// Wait until the rollout, update or install is complete or stopped.
        #[arg(short, long)]
        watch: bool,
        /// Timeout, such as 90s or 10m; 0 means none.
        #[arg(long, default_value = "0", value_parser = parse_duration, requires = "watch")]
        timeout: SignedDuration,
        /// Print in a machine-readable format.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
    },
    #[command(flatten)]
    Steer(Steer),
    /// List revisions.
    History {
        #[command(flatten)]
        workload: Workload,
        /// Show the pod template of this revision.
        #[arg(long, value_name = "NUMBER", conflicts_with = "output")]
        revision: Option<i64>,
        /// Print the ControllerRevisions.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// List HookRuns with their last measurements.
    Hooks {
        /// NAME, gd/NAME or gsts/NAME; HookRuns of all workloads when absent.
        #[arg(value_name = "WORKLOAD")]
        workload: Vec<String>,
        /// In all namespaces.
        #[arg(short = 'A', long, conflicts_with = "workload")]
        all_namespaces: bool,
        /// Only those that ended without success.
        #[arg(long)]
        failed: bool,
        /// Print the HookRuns.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Serve a page on this machine that shows what runs, what waits, and who has to act.
    View(ViewOptions),
    /// Check the installation: operator, webhook, guard, versions, and your rights. The exit code is 2 if something is wrong.
    Doctor,
    /// Check manifests without a cluster.
    #[command(after_help = LINT_EXIT_CODES)]
    Lint(lint_command::Options),
    /// Print a completion script.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Candidates for kubectl's own completion.
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words typed so far; the last one is completed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// Commands that change a workload, its pods, a SidecarSet or a Cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum Steer {
    /// Start no more pod updates until resumed.
    Pause(ChangeOptions),
    /// End a pause, whether set by a user or by a canary step.
    Resume(ChangeOptions),
    /// Continue past the paused canary step, or skip all remaining steps.
    Promote {
        #[command(flatten)]
        options: ChangeOptions,
        /// Skip all remaining canary steps. Hooks of pods still run.
        #[arg(long)]
        full: bool,
    },
    /// Run failed hooks again: those of pods, and that of the canary step.
    Retry {
        #[command(flatten)]
        options: ChangeOptions,
        /// Only hooks at this hook point.
        #[arg(long, value_parser = point)]
        point: Option<HookPoint>,
    },
    /// Roll back to the stable revision (during a rollout) or the previous one.
    Undo {
        #[command(flatten)]
        options: ChangeOptions,
        /// Number of the revision, as history shows it.
        #[arg(long, value_name = "NUMBER")]
        to_revision: Option<i64>,
    },
    /// Replace a pod, or all pods on a node, as soon as their hooks allow it.
    Move(MoveOptions),
    /// Let guarded pods be deleted without their hook: pod/NAME, or all pods of a workload.
    Release {
        /// pod/NAME; or NAME, gd/NAME or gsts/NAME for all its guarded pods.
        #[arg(value_name = "POD or WORKLOAD", required = true, num_args = 1..)]
        words: Vec<String>,
        /// Do not ask for a confirmation.
        #[arg(short, long)]
        yes: bool,
        /// Submit the change as a server-side dry run; `--dry-run=server` and `--dry-run=none` as in kubectl.
        #[arg(long, value_name = "server|none", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
            default_value = "none", default_missing_value = "server", value_parser = dry_run)]
        dry_run: bool,
    },
    /// Recreate all pods (RollingUpdate, OnDelete).
    Restart(ChangeOptions),
    /// Change a field.
    #[command(subcommand)]
    Set(SetCommand),
}

impl ChangeOptions {
    /// Whether workloads are selected rather than named.
    pub fn selects(&self) -> bool {
        self.all || self.selector.is_some()
    }
}

impl Steer {
    /// The options of a change of workloads; None for a command that names something else.
    pub fn change_options(&mut self) -> Option<&mut ChangeOptions> {
        match self {
            Self::Pause(options)
            | Self::Resume(options)
            | Self::Restart(options)
            | Self::Promote { options, .. }
            | Self::Retry { options, .. }
            | Self::Undo { options, .. } => Some(options),
            Self::Move(_) | Self::Release { .. } | Self::Set(_) => None,
        }
    }
}

/// Fields that can be changed.
#[derive(Clone, Debug, Subcommand)]
pub enum SetCommand {
    /// Set images of containers: set image gd/NAME CONTAINER=IMAGE ...
    Image {
        /// The workload, then CONTAINER=IMAGE for each container; * is all of them.
        #[arg(value_name = "WORKLOAD CONTAINER=IMAGE", required = true, num_args = 1..)]
        words: Vec<String>,
        #[command(flatten)]
        write: WriteOptions,
    },
}

fn dry_run(word: &str) -> Result<bool, String> {
    match word {
        "server" | "true" => Ok(true),
        "none" | "false" => Ok(false),
        _ => Err("write server or none: a change is computed from the cluster's state".to_owned()),
    }
}

fn point(word: &str) -> Result<HookPoint, String> {
    let mut points = HookPoint::OF_PODS.into_iter().chain([HookPoint::Step]);
    let found = points.find(|point| point.as_str().eq_ignore_ascii_case(word));
    found.ok_or_else(|| "write PreDelete, PreInplace, PostInplace or Step".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_reach_the_cluster_are_typed_again() {
        let cli = Cli::try_parse_from([
            "kubectl-game",
            "--context",
            "live",
            "status",
            "game",
            "-n",
            "prod",
            "--as",
            "it's me",
            "--as-group=a",
            "--as-group=b",
        ]);
        let options = cli.expect("options").cluster;
        assert_eq!(
            options.as_typed(),
            r" --context live --as 'it'\''s me' --as-group a --as-group b"
        );
        assert_eq!(ClusterOptions::default().as_typed(), "");
    }

    #[test]
    fn a_dry_run_is_requested_as_in_kubectl() {
        for (option, expected) in [
            (None, Some(false)),
            (Some("--dry-run"), Some(true)),
            (Some("--dry-run=server"), Some(true)),
            (Some("--dry-run=none"), Some(false)),
            (Some("--dry-run=client"), None),
        ] {
            let words = ["kubectl-game", "pause", "game"].into_iter().chain(option);
            let parsed = Cli::try_parse_from(words).ok().map(|cli| match cli.command {
                Command::Steer(Steer::Pause(options)) => options.write.dry_run,
                _ => unreachable!("the command is pause"),
            });
            assert_eq!(parsed, expected, "{option:?}");
        }
    }
}
