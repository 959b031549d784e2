//! The program `kubectl-game`, which kubectl runs as `kubectl game`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    kubectl_game::run().await
}
