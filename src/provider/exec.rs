//! Exec metrics: a command in a container of the pod that the run is about. The command's exit
//! code is the measurement, and conditions can judge the command's output.
//!
//! The command is run through the API server, which checks the operator's permission and logs the request. Users who
//! may write a HookRun need not be allowed to run commands, so commands are run only in namespaces that an
//! administrator has named, and there only in pods of workloads. If the run was created for a pod, the command must
//! run in exactly that pod, which is checked before and after the command.

use std::process::Stdio;
use std::time::Duration;

use tokio::process;
use tokio::time::timeout;

use super::call_permit::CallPermit;
use super::cluster::Cluster;
use super::command_output::CommandOutput;
use super::filling::Filling;
use super::judge::Conditions;
use super::measure::Measurement;
use super::own_pod::{self, Pod};
use gamekeeper_core::api::{ExecMetric, HookPhase, HookRun};
use gamekeeper_core::expr::{Subject, brief};
use gamekeeper_core::hook_run::{
    ExecNamespaces, MAX_COMMAND, Outcome, SECRET_IN_COMMAND, STEP_HAS_NO_POD,
};

/// How long a command may take, in seconds, unless its metric sets a timeout.
const DEFAULT_TIMEOUT: u64 = 10;
/// Exit codes with which shells and container runtimes report that the command could not be run.
const NOT_RUN: [i32; 2] = [126, 127];

/// Where commands are run.
#[derive(Clone, Debug)]
pub enum Commands {
    /// In containers, in these namespaces.
    In(ExecNamespaces),
    /// On this machine, regardless of the container.
    Here,
    /// Nowhere, for this reason.
    Nowhere(&'static str),
}

impl Default for Commands {
    fn default() -> Self {
        Commands::In(ExecNamespaces::default())
    }
}

impl Commands {
    fn check(&self, namespace: &str) -> Result<(), String> {
        match self {
            Commands::In(namespaces) => namespaces.check(namespace),
            Commands::Here => Ok(()),
            Commands::Nowhere(why) => Err((*why).to_owned()),
        }
    }
}

/// A command with its arguments filled in, and where to run it.
struct Invocation {
    /// The name of the pod, or why it is not known.
    pod: Result<String, String>,
    container: String,
    command: Vec<String>,
}

/// How a command ended.
pub(super) struct Ended {
    /// Its exit code, or why there is none.
    pub code: Result<i32, String>,
    pub output: CommandOutput,
}

/// Runs the command and judges how it ends.
pub(super) async fn measure(
    measurement: &Measurement,
    exec: &ExecMetric,
    permit: CallPermit,
) -> Outcome {
    let measured = run(measurement, exec, permit).await;
    measured.unwrap_or_else(Outcome::error)
}

async fn run(
    measurement: &Measurement,
    exec: &ExecMetric,
    mut permit: CallPermit,
) -> Result<Outcome, String> {
    let commands = &measurement.probe.commands;
    commands.check(permit.namespace())?;
    if !measurement.arguments.secrets.is_empty() {
        return Err(SECRET_IN_COMMAND.into());
    }
    let invocation = measurement.filled(&mut permit, invocation).await?;
    let seconds = exec.timeout_seconds.and_then(|it| u64::try_from(it).ok());
    let seconds = seconds.filter(|it| *it > 0).unwrap_or(DEFAULT_TIMEOUT);
    let limit = Duration::from_secs(seconds);
    let ended = match commands {
        Commands::Here => with_time_limit(limit, run_here(&invocation.command)).await?,
        _ => in_container(measurement, invocation, limit, &mut permit).await?,
    };
    let conditions = Conditions::of(measurement.metric());
    measurement
        .evaluated(move || {
            let _permit = permit;
            assess(&ended, &conditions)
        })
        .await
}

fn invocation(measurement: &Measurement, filling: &mut Filling<'_>) -> Result<Invocation, String> {
    let exec = measurement.metric().provider.exec.as_ref().ok_or("no exec metric")?;
    let container = filling.text("container", &exec.container)?;
    let command = exec.command.iter();
    let command = command.map(|element| filling.text("command", element));
    let command: Vec<String> = command.collect::<Result<_, _>>()?;
    if command.iter().map(String::len).sum::<usize>() > MAX_COMMAND {
        let max = MAX_COMMAND >> 10;
        return Err(format!("command: it is longer than {max} KiB with its arguments filled in"));
    }
    Ok(Invocation { pod: own_pod::name(measurement, filling), container, command })
}

/// Runs the command in its container, if hooks may run commands there.
async fn in_container(
    measurement: &Measurement,
    invocation: Invocation,
    limit: Duration,
    permit: &mut CallPermit,
) -> Result<Ended, String> {
    let Invocation { pod, container, command } = invocation;
    if own_pod::is_step_run(measurement.run()) {
        return Err(STEP_HAS_NO_POD.into());
    }
    let (cluster, pod) = (measurement.cluster()?, pod?);
    let uid = checked_pod(cluster, measurement.run(), &pod, &container, permit).await?;
    let namespace = permit.namespace().to_owned();
    let ended = cluster.exec(&namespace, &pod, &container, command, limit);
    let ended = ended.await?;
    let found = read_pod(cluster, &pod, permit).await?;
    match found.uid() == uid {
        true => Ok(ended),
        false => Err(format!(
            "pod {pod} was replaced while the command ran: it is not known in which of the two the command ran"
        )),
    }
}

/// Checks that the run may run commands in this container of the pod, and returns the pod's uid.
async fn checked_pod(
    cluster: &Cluster,
    run: &HookRun,
    pod: &str,
    container: &str,
    permit: &mut CallPermit,
) -> Result<String, String> {
    let found = read_pod(cluster, pod, permit).await?;
    own_pod::check_uid(run, pod, found.uid())?;
    if !found.belongs_to_workload() {
        return Err(format!(
            "pod {pod} belongs to no GameDeployment or GameStatefulSet: hooks run commands only in pods of these"
        ));
    }
    found.check_container(pod, container)?;
    Ok(found.uid().to_owned())
}

async fn read_pod(cluster: &Cluster, pod: &str, permit: &mut CallPermit) -> Result<Pod, String> {
    let namespace = permit.namespace().to_owned();
    let text = cluster.pod(&namespace, pod, permit).await?;
    let found = serde_json::from_str(&text).map_err(|error| format!("pod {pod}: {error}"));
    drop(text);
    // What follows needs only short texts, and may take a long time.
    permit.shrink();
    found
}

/// Waits for a command to end, for at most `limit`.
pub(super) async fn with_time_limit(
    limit: Duration,
    command: impl Future<Output = Result<Ended, String>>,
) -> Result<Ended, String> {
    let ended = timeout(limit, command).await;
    ended.unwrap_or_else(|_| {
        let seconds = limit.as_secs();
        Err(format!("the command did not exit within {seconds} s, and may still be running"))
    })
}

/// Runs a command on this machine. The command is killed when this future is dropped.
async fn run_here(command: &[String]) -> Result<Ended, String> {
    let (program, args) = command.split_first().ok_or("command: it is empty")?;
    let mut child = process::Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{program}: its output cannot be read"));
    };
    let exit = async { child.wait().await.map_err(|error| error.to_string()) };
    let (output, exit) = tokio::try_join!(CommandOutput::read(stdout, stderr), exit)?;
    let code = exit.code();
    Ok(Ended { code: code.ok_or_else(|| format!("the command was killed: {exit}")), output })
}

/// The outcome of a command that has ended. Must run on the evaluation pool.
fn assess(ended: &Ended, conditions: &Conditions) -> Outcome {
    let Ended { code, output } = ended;
    let stderr = output.stderr.text();
    let printed = match stderr.trim() {
        "" => output.stdout.text(),
        _ => stderr,
    };
    let with_output = |message: String| match printed.trim() {
        "" => message,
        printed => format!("{message}: {}", brief(printed)),
    };
    let code = match code {
        Ok(code) => *code,
        Err(why) => return Outcome::error(with_output(why.clone())),
    };
    if NOT_RUN.contains(&code) {
        let message = format!("the command could not be run: exit code {code}");
        return Outcome::error(with_output(message));
    }
    if code != 0 {
        return Outcome {
            phase: HookPhase::Failed,
            message: Some(with_output(format!("the command exited with code {code}"))),
            ..Outcome::default()
        };
    }
    if output.stdout.is_cut && !conditions.is_empty() {
        return Outcome::error(
            "the command printed more than 32 KiB, which is too long for a condition",
        );
    }
    conditions.judge(&Subject::text(output.stdout.text()), None)
}

#[cfg(test)]
mod tests {
    use gamekeeper_core::api::Metric;
    use gamekeeper_core::expr::on_deep_stack;
    use serde_json::json;

    use super::*;

    /// The outcome of a command on this machine, with these conditions.
    async fn outcome(command: &[&str], conditions: serde_json::Value) -> Outcome {
        let command: Vec<String> = command.iter().map(|it| (*it).to_owned()).collect();
        let mut metric = json!({"name": "m", "provider": {}});
        let fields = metric.as_object_mut().expect("an object");
        fields.extend(conditions.as_object().expect("fields").clone());
        let metric: Metric = serde_json::from_value(metric).expect("a metric");
        let ended = with_time_limit(Duration::from_secs(20), run_here(&command)).await;
        match ended {
            Ok(ended) => {
                on_deep_stack(|| assess(&ended, &Conditions::of(&metric))).expect("judged")
            }
            Err(why) => Outcome::error(why),
        }
    }

    #[tokio::test]
    async fn the_exit_code_is_the_measurement() {
        use HookPhase::{Error, Failed, Successful};
        let none = json!({});
        let idle = json!({"successCondition": "asInt(result) == 0"});
        for (script, conditions, phase, value, message) in [
            ("true", &none, Successful, Some(""), ""),
            ("echo 3", &none, Successful, Some("3"), ""),
            ("echo 0", &idle, Successful, Some("0"), ""),
            (
                "echo 3",
                &idle,
                Failed,
                Some("3"),
                "successCondition asInt(result) == 0 does not hold: result is 3",
            ),
            ("echo none", &idle, Error, Some("none"), "successCondition "),
            // Conditions judge only the output of a command that exited with code 0.
            ("echo 0; exit 1", &idle, Failed, None, "the command exited with code 1: 0"),
            (
                "echo out; echo players >&2; exit 3",
                &none,
                Failed,
                None,
                "the command exited with code 3: players",
            ),
            ("exit 1", &none, Failed, None, "the command exited with code 1"),
            ("exit 126", &none, Error, None, "the command could not be run: exit code 126"),
            (
                "no-such-program",
                &none,
                Error,
                None,
                "the command could not be run: exit code 127: ",
            ),
            ("kill -9 $$", &none, Error, None, "the command was killed: "),
            (
                "head -c 40000 /dev/zero | tr '\\0' x",
                &idle,
                Error,
                None,
                "the command printed more than 32 KiB, which is too long for a condition",
            ),
        ] {
            let found = outcome(&["sh", "-c", script], conditions.clone()).await;
            let shown = found.message.unwrap_or_default();
            assert_eq!((found.phase, found.value.as_deref()), (phase, value), "{shown}");
            assert!(shown.starts_with(message), "{shown}");
            assert_eq!(shown.is_empty(), message.is_empty(), "{shown}");
        }
        let long = outcome(&["head", "-c", "40000", "/dev/zero"], none).await;
        assert_eq!(long.phase, Successful);
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error() {
        let found = outcome(&["/no/such/program"], json!({})).await;
        let shown = found.message.unwrap_or_default();
        assert!(shown.starts_with("/no/such/program: "), "{shown}");
        assert_eq!(found.phase, HookPhase::Error);
    }

    #[tokio::test]
    async fn a_command_that_does_not_exit_times_out() {
        let command = ["sleep", "600"].map(str::to_owned);
        let ended = with_time_limit(Duration::from_secs(1), run_here(&command)).await;
        let why = ended.err().expect("a timeout");
        assert_eq!(why, "the command did not exit within 1 s, and may still be running");
    }
}
