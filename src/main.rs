//! The `gamekeeper` binary: one match over its subcommands.

use clap::{Parser, Subcommand};

/// Runs game servers on Kubernetes without ever killing a match.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the CustomResourceDefinitions as YAML documents.
    Crds,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Crds => print_crds(),
    }
}

fn print_crds() -> Result<(), Box<dyn std::error::Error>> {
    for crd in gamekeeper::api::crds() {
        print!("---\n{}", serde_yaml_ng::to_string(&crd)?);
    }
    Ok(())
}
