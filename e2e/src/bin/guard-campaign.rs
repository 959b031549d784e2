//! `make guard-campaign`: plays seeded histories of guarded pods, and prints the table of docs/guard.md.
//!
//! Usage: `guard-campaign [COUNT [SEED]]`, by default 100 histories starting at seed 0. With RESUME=1, histories that
//! were already played with this build of the operator are skipped. The outcomes are in target/e2e/guard-campaign, with
//! the files of histories that failed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use e2e::campaign::guard::{History, Record, Stage, Table, Variant, play};
use e2e::cluster::control_plane::stop_all;
use e2e::trial::plane;
use futures::StreamExt;
use futures::stream::iter;
use ring::digest::{SHA256, digest};

/// The default number of histories.
const COUNT: u64 = 100;
/// How many histories run at a time. They mostly wait.
const CONCURRENCY: usize = 4;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let mut number = |default| match args.next() {
        Some(text) => text.parse().context("usage: guard-campaign [COUNT [SEED]]"),
        None => Ok(default),
    };
    let (count, first) = (number(COUNT)?, number(0)?);
    let folder = folder()?;
    let build = Build::read()?;
    let outcome = tokio::select! {
        outcome = campaign(first, count, &folder, &build) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted; continue with RESUME=1")),
    };
    stop_all().await;
    let mut table = Table::default();
    for (seed, variant) in seeds_and_variants(first, count) {
        if let Some(record) = recorded(&folder, seed, variant, &build) {
            table.add(record);
        }
    }
    println!("{table}");
    let is_complete = outcome.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        false
    });
    Ok(match is_complete && table.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Plays histories, and records their outcomes. Returns whether all could be played.
async fn campaign(first: u64, count: u64, folder: &Path, build: &Build) -> Result<bool> {
    let stage = Stage::install(plane().await?, "guard-campaign", &folder.join("system")).await?;
    let resumes = std::env::var("RESUME").is_ok_and(|value| value == "1");
    let mut todo = Vec::new();
    for (seed, variant) in seeds_and_variants(first, count) {
        match resumes && recorded(folder, seed, variant, build).is_some() {
            true => continue,
            false => todo.push((seed, variant)),
        }
        let file = file(folder, seed, variant);
        if file.exists() {
            std::fs::remove_file(file)?;
        }
    }
    let plays = todo.into_iter().map(|(seed, variant)| {
        let (stage, files) = (&stage, folder.join(format!("{seed}-{}", variant.short())));
        async move {
            let played = play(stage, &History::from_seed(seed), variant, &files).await;
            (seed, variant, played)
        }
    });
    let mut plays = iter(plays).buffer_unordered(CONCURRENCY);
    let mut is_complete = true;
    while let Some((seed, variant, played)) = plays.next().await {
        let mut played = match played {
            Ok(played) => played,
            Err(error) => {
                eprintln!("history {seed} as {variant} was aborted: {error:#}\n");
                is_complete = false;
                continue;
            }
        };
        played.record.build = build.digest(seed);
        let record = serde_json::to_vec(&played.record)?;
        std::fs::write(file(folder, seed, variant), record)?;
        let ended: u64 = played.record.ended.values().sum();
        let matches = played.record.matches;
        match played.passed() {
            true => eprintln!("history {seed} as {variant}: {ended} of {matches} matches ended"),
            false => eprintln!("{played}\n"),
        }
    }
    Ok(is_complete)
}

fn seeds_and_variants(first: u64, count: u64) -> impl Iterator<Item = (u64, Variant)> {
    let seeds = first..first + count;
    seeds.flat_map(|seed| Variant::ALL.map(|variant| (seed, variant)))
}

fn file(folder: &Path, seed: u64, variant: Variant) -> PathBuf {
    folder.join(format!("{seed}-{}.json", variant.short()))
}

/// The recorded outcome of a history, if it was played with this build of the operator.
fn recorded(folder: &Path, seed: u64, variant: Variant, build: &Build) -> Option<Record> {
    let record = std::fs::read(file(folder, seed, variant)).ok()?;
    let record: Record = serde_json::from_slice(&record).ok()?;
    (record.build == build.digest(seed)).then_some(record)
}

/// Where outcomes are recorded.
fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2);
    let target = target.context("the program is not in target/")?;
    let folder = target.join("e2e/guard-campaign");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// What an outcome depends on: the operator's program and the history.
struct Build(Vec<u8>);

impl Build {
    fn read() -> Result<Self> {
        let operator = std::env::current_exe()?.with_file_name("gamekeeper");
        let content = std::fs::read(&operator);
        let content = content.with_context(|| operator.display().to_string())?;
        Ok(Build(digest(&SHA256, &content).as_ref().to_vec()))
    }

    /// The digest of the program and a history.
    fn digest(&self, seed: u64) -> String {
        let history = History::from_seed(seed).to_string();
        let digest = digest(&SHA256, &[&self.0, history.as_bytes()].concat());
        let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
        hex.collect()
    }
}
