//! The `gamekeeper` binary and its subcommands.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gamekeeper::manager::{Options, wait_for};
use gamekeeper::{node_hook, try_run, unguard};
use gamekeeper_core::causes::with_causes;
use tokio::runtime::Runtime;

/// Runs game servers on Kubernetes without ever killing a match.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator.
    Run(Options),
    /// Remove everything that guards pods, before the operator is uninstalled.
    Unguard(unguard::Options),
    /// Print the CustomResourceDefinitions as YAML documents.
    Crds,
    /// Run a HookTemplate once, without a cluster. Exit code: 0 Successful, 1 Failed, 2 Error, 3 Inconclusive.
    Try(try_run::Options),
    /// Copy files to the node that this runs on, and run a script there. Used by the Jobs of lifecycle hooks.
    NodeHook(node_hook::Options),
    /// Wait until the cluster is ready, or until an operator leads. Used by the chart's bootstrap hooks.
    WaitFor(wait_for::Options),
    /// Serve the page of `kubectl game view` to visitors who bring their own tokens.
    View(kubectl_game::ViewOptions),
    /// Check manifests without a cluster. Exit code: 0 no errors, 1 something would be rejected, 2 a file cannot be read.
    Lint(lint_command::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(options) => block_on(gamekeeper::manager::run(options)),
        Command::Unguard(options) => block_on(unguard::run(&options)),
        Command::Crds => print_crds(),
        Command::Try(options) => return try_template(&options),
        Command::NodeHook(options) => return ExitCode::from(node_hook::run(&options)),
        Command::WaitFor(options) => block_on(wait_for::wait(&options)),
        Command::View(options) => block_on(kubectl_game::serve_view(options)),
        Command::Lint(options) => return ExitCode::from(lint_command::run(&options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gamekeeper: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Runs a subcommand to its end, and does not wait for lookups of host names: they cannot be canceled, and may take a
/// minute each.
fn block_on<T, E: Into<Box<dyn Error>>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result.map_err(Into::into)
}

fn try_template(options: &try_run::Options) -> ExitCode {
    match block_on(try_run::run(options, |line| println!("{line}"))) {
        Ok(status) => {
            let message = status.message.map(|message| format!(": {message}"));
            println!("{}{}", status.phase, message.unwrap_or_default());
            ExitCode::from(try_run::exit_code(status.phase))
        }
        Err(error) => {
            eprintln!("gamekeeper: {error}");
            ExitCode::from(2)
        }
    }
}

fn print_crds() -> Result<(), Box<dyn Error>> {
    for crd in gamekeeper_core::api::crds() {
        print!("---\n{}", serde_yaml_ng::to_string(&crd)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn a_task_that_blocks_does_not_delay_the_exit() {
        let (go, gate) = mpsc::channel();
        block_on(async {
            let (blocks, blocked) = oneshot::channel();
            spawn_blocking(move || {
                let _ = blocks.send(());
                let _ = gate.recv_timeout(Duration::from_secs(10));
            });
            let _ = blocked.await;
            Ok::<_, Infallible>(())
        })
        .expect("no error");
        assert!(go.send(()).is_ok(), "the task has ended");
    }
}
