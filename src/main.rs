//! The `gamekeeper` binary: one match over its subcommands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gamekeeper::manager::{Options, RunError};

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
    /// Print the CustomResourceDefinitions as YAML documents.
    Crds,
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Run(options) => run_operator(options).map_err(Into::into),
        Command::Crds => print_crds(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gamekeeper: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run_operator(options: Options) -> Result<(), RunError> {
    gamekeeper::manager::run(options).await
}

fn print_crds() -> Result<(), Box<dyn std::error::Error>> {
    for crd in gamekeeper::api::crds() {
        print!("---\n{}", serde_yaml_ng::to_string(&crd)?);
    }
    Ok(())
}
