//! `kubectl game`: shows and controls rollouts of GameDeployments, GameStatefulSets and SidecarSets.
//!
//! What a command prints (`view`, `verdict`) and what it changes (`change`) are pure functions of the
//! objects; `cluster`, `watch` and `follow` talk to the API server; `command`, `steer`
//! and `web` combine them.

mod age;
mod change;
mod cluster;
mod command;
mod complete;
mod config;
mod doctor;
mod error;
#[cfg(test)]
mod fixture;
mod follow;
mod game;
mod kind;
mod lifecycle;
mod move_pods;
mod options;
mod page;
mod pod_changes;
mod poll;
mod print;
mod proxy;
mod release;
mod scene;
mod sidecar_set;
mod steer;
mod style;
mod suggest;
mod table;
mod verdict;
mod view;
mod watch;
mod web;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::options::Cli;
use crate::page::sanitize_lines;

pub use crate::web::cluster::{Options as ViewOptions, serve as serve_view};

/// Runs the plugin with the arguments of the process.
pub async fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If the output is closed, there is nowhere else to report the error.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    match command::run(cli).await {
        Ok(code) => code,
        // The reader has closed the pipe: `kubectl game get | head -1`.
        Err(Error::Print(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", sanitize_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}
