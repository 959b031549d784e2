//! `make campaign`: plays seeded histories and prints their figures, for docs/reliability.md.
//!
//! Usage: `campaign [COUNT [SEED]]`, by default 300 histories starting at seed 0. The files of a failed history
//! are kept in target/e2e/campaign/SEED.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use e2e::campaign::{Figures, History, play};
use e2e::cluster::control_plane::stop_all;
use e2e::trial::plane;
use futures::StreamExt;
use futures::stream::iter;

/// The default number of histories.
const COUNT: u64 = 300;
/// How many histories run at a time. They mostly wait.
const CONCURRENCY: usize = 4;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let mut number = |default| match args.next() {
        Some(text) => text.parse().context("usage: campaign [COUNT [SEED]]"),
        None => Ok(default),
    };
    let (count, first) = (number(COUNT)?, number(0)?);
    let figures = tokio::select! {
        figures = campaign(first, count) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    stop_all().await;
    let figures = figures?;
    println!("{figures}");
    Ok(match figures.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn campaign(first: u64, count: u64) -> Result<Figures> {
    let plane = plane().await?;
    let folder = folder()?;
    let played = iter(first..first + count).map(|seed| {
        let folder = folder.join(seed.to_string());
        async move { play(plane, History::from_seed(seed), &folder).await }
    });
    let mut played = played.buffer_unordered(CONCURRENCY);
    let mut figures = Figures::default();
    while let Some(outcome) = played.next().await {
        figures.add(&outcome);
        match outcome.passed() {
            true => eprintln!("history {} passed", outcome.history.seed),
            false => eprintln!("{outcome}\n"),
        }
    }
    Ok(figures)
}

/// Where the files of failed histories are kept.
fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2);
    let target = target.context("the program is not in target/")?;
    Ok(target.join("e2e/campaign"))
}
