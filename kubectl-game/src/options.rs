//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::plan::parse_duration;
use jiff::SignedDuration;

/// See and steer rollouts of GameDeployments and GameStatefulSets.
///
/// A workload is NAME, gd/NAME or gsts/NAME; a name alone finds its kind.
#[derive(Parser)]
#[command(name = "kubectl-game", bin_name = "kubectl game", version)]
pub struct Cli {
    /// Where.
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// What.
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
    /// Longest wait for the answer to a request, such as 5s; 0 is forever.
    #[arg(long, global = true, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub request_timeout: SignedDuration,
}

/// A longest wait; None is forever.
pub fn limit(wait: SignedDuration) -> Option<Duration> {
    let wait = Duration::try_from(wait).ok()?;
    (!wait.is_zero()).then_some(wait)
}

/// A duration, or a number of seconds, as kubectl takes it for requests.
fn seconds(word: &str) -> Result<SignedDuration, String> {
    match word.parse::<u32>() {
        Ok(seconds) => Ok(SignedDuration::from_secs(seconds.into())),
        Err(_) => parse_duration(word),
    }
}

/// A workload.
#[derive(Args, Clone, Debug)]
pub struct Workload {
    /// NAME, gd/NAME or gsts/NAME.
    #[arg(value_name = "WORKLOAD", required = true, num_args = 1..)]
    pub words: Vec<String>,
}

/// How a change is made and told.
#[derive(Args, Clone, Debug)]
pub struct Write {
    /// Have the API server check the change without making it.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the changed object.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
}

/// A workload, and how it is changed.
#[derive(Args, Clone, Debug)]
pub struct On {
    /// The workload.
    #[command(flatten)]
    pub workload: Workload,
    /// How.
    #[command(flatten)]
    pub write: Write,
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

const STATUS_EXIT_CODES: &str = "\
Exit codes:
  0  the rollout is complete
  1  error; with --watch: also when the cluster had not answered once when the time was over
  2  it is stopped and waits for a person: paused, or blocked by a failed hook, a refused template, ...
  3  it is under way; with --watch: it still was when the time was over";

const LINT_EXIT_CODES: &str = "\
Exit codes:
  0  nothing is wrong
  1  something would be refused
  2  a file cannot be read";

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// List workloads.
    #[command(visible_alias = "list")]
    Get {
        /// Workloads; all of them when absent. gd or gsts alone lists a kind.
        #[arg(value_name = "WORKLOAD")]
        workloads: Vec<String>,
        /// In all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Only those with these labels, such as app=game,tier!=test.
        #[arg(short = 'l', long)]
        selector: Option<String>,
        /// Print the objects.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Show a workload, its revisions, pods and HookRuns.
    Tree {
        #[command(flatten)]
        workload: Workload,
        /// Follow what happens, until interrupted.
        #[arg(short, long)]
        watch: bool,
        /// Show all pods, however many there are.
        #[arg(long)]
        all_pods: bool,
    },
    /// Say how a rollout is, or why it does not go on.
    #[command(after_help = STATUS_EXIT_CODES)]
    Status {
        #[command(flatten)]
        workload: Workload,
        /// Wait until it is complete, or stopped.
        #[arg(short, long)]
        watch: bool,
        /// Longest wait, such as 90s or 10m; 0 is forever.
        #[arg(long, default_value = "0", value_parser = parse_duration, requires = "watch")]
        timeout: SignedDuration,
        /// Print it for programs.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// What changes something.
    #[command(flatten)]
    Steer(Steer),
    /// List revisions.
    History {
        #[command(flatten)]
        workload: Workload,
        /// Show the pod template of this one.
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
        /// Only those that ended, and not well.
        #[arg(long)]
        failed: bool,
        /// Print the HookRuns.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Check manifests without a cluster.
    #[command(after_help = LINT_EXIT_CODES)]
    Lint(lint_command::Options),
    /// Print a completion script.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// What kubectl's own completion asks for, in its protocol.
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words so far; the last one is to be completed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// What to change.
#[derive(Subcommand)]
pub enum Steer {
    /// Start no more pod updates until somebody resumes.
    Pause(On),
    /// End a pause, whoever made it.
    Resume(On),
    /// Go on from the canary step that pauses, or skip all steps that are left.
    Promote {
        #[command(flatten)]
        on: On,
        /// Skip all canary steps that are left. Hooks of pods are asked as ever.
        #[arg(long)]
        full: bool,
    },
    /// Run failed hooks of pods anew.
    Retry {
        #[command(flatten)]
        on: On,
        /// Only those of this point.
        #[arg(long, value_parser = point)]
        point: Option<HookPoint>,
    },
    /// Roll back to the stable revision (in a rollout) or the previous one.
    Undo {
        #[command(flatten)]
        on: On,
        /// Number of the revision, as history shows it.
        #[arg(long, value_name = "NUMBER")]
        to_revision: Option<i64>,
    },
    /// Make all pods anew (RollingUpdate, OnDelete).
    Restart(On),
    /// Change a field.
    #[command(subcommand)]
    Set(SetCommand),
}

/// Fields that can be changed.
#[derive(Subcommand)]
pub enum SetCommand {
    /// Give containers new images: set image gd/NAME CONTAINER=IMAGE ...
    Image {
        /// The workload, then CONTAINER=IMAGE for each container; * is all of them.
        #[arg(value_name = "WORKLOAD CONTAINER=IMAGE", required = true, num_args = 1..)]
        words: Vec<String>,
        #[command(flatten)]
        write: Write,
    },
}

fn point(word: &str) -> Result<HookPoint, String> {
    let mut points = HookPoint::OF_PODS.into_iter();
    let found = points.find(|point| point.as_str().eq_ignore_ascii_case(word));
    found.ok_or_else(|| "write PreDelete, PreInplace or PostInplace".to_owned())
}
