//! The `gamekeeper` binary and its subcommands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gamekeeper::manager::{Options, RunError, wait_for};
use gamekeeper::{node_hook, try_run, unguard};
use gamekeeper_core::causes::with_causes;

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
    /// Check manifests without a cluster. Exit code: 0 no errors, 1 something would be rejected, 2 a file cannot be read.
    Lint(lint_command::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(options) => run_operator(options).map_err(Into::into),
        Command::Unguard(options) => remove_guards(&options).map_err(Into::into),
        Command::Crds => print_crds(),
        Command::Try(options) => return try_template(&options),
        Command::NodeHook(options) => return ExitCode::from(node_hook::run(&options)),
        Command::WaitFor(options) => wait_for(&options).map_err(Into::into),
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

#[tokio::main]
async fn run_operator(options: Options) -> Result<(), RunError> {
    gamekeeper::manager::run(options).await
}

#[tokio::main]
async fn wait_for(options: &wait_for::Options) -> Result<(), RunError> {
    wait_for::wait(options).await
}

#[tokio::main]
async fn remove_guards(options: &unguard::Options) -> Result<(), unguard::UnguardError> {
    unguard::run(options).await
}

#[tokio::main]
async fn try_template(options: &try_run::Options) -> ExitCode {
    match try_run::run(options, |line| println!("{line}")).await {
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

fn print_crds() -> Result<(), Box<dyn std::error::Error>> {
    for crd in gamekeeper_core::api::crds() {
        print!("---\n{}", serde_yaml_ng::to_string(&crd)?);
    }
    Ok(())
}
