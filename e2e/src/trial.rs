//! Runs the tests in parallel on one control plane.
//!
//! The control plane starts with the first test and stops after the last, even if tests fail or the run
//! is interrupted. The next run removes what a killed run left behind. With `E2E_CLUSTER=NAME`, the tests use a
//! control plane that stays up, which saves time during development. With `E2E_KUBERNETES=1.30`, the control planes have
//! that version, and with `E2E_AREAS=install,guard`, only the tests of these areas run ([`crate::areas`]). `E2E_KUBECTL`
//! and `E2E_HELM` are paths of other versions of these programs.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::case::{Case, evidence};
use crate::cluster::control_plane::{ControlPlane, stop_all};
use crate::node;

/// How many tests run at a time. They mostly wait.
const CONCURRENCY: usize = 8;
/// How long a test may take. Some start a control plane of their own, or run all commands of a document.
const LIMIT: Duration = Duration::from_secs(1200);

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A test, registered by the attribute [`test`](crate::test).
#[derive(Clone, Copy)]
pub struct Test {
    /// Its path with the crate.
    path: &'static str,
    /// Its line in the file.
    line: u32,
    body: Body,
}

inventory::collect!(Test);

/// The function of a test.
pub type Body = for<'a> fn(&'a mut Case) -> LocalBoxFuture<'a, Result<()>>;

impl Test {
    /// A test of this path, at this line of its file.
    pub const fn new(path: &'static str, line: u32, body: Body) -> Self {
        Test { path, line, body }
    }

    /// The name that selects the test: its path without the crate.
    pub fn name(&self) -> &'static str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }
}

/// The tests of this binary, by module, and in the order of their file.
pub fn all() -> Vec<Test> {
    let mut tests: Vec<Test> = inventory::iter::<Test>().copied().collect();
    let module = |test: &Test| test.name().rsplit_once("::").map_or("", |(module, _)| module);
    tests.sort_by_key(|test| (module(test), test.line));
    tests
}

/// Runs the tests that the command line selects.
pub fn main(tests: Vec<Test>) -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CONCURRENCY);
    let runtime = Runtime::new()?;
    runtime.spawn(stop_when_interrupted());
    let handle = runtime.handle();
    let trials = tests.into_iter().map(|test| {
        let handle = handle.clone();
        Trial::test(test.name(), move || {
            let outcome = handle.block_on(run(&test));
            outcome.map_err(|error| Failed::from(format!("{error:#}")))
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    runtime.block_on(stop());
    Ok(conclusion.exit_code())
}

/// The control plane that all tests share.
pub async fn plane() -> Result<&'static ControlPlane> {
    let start = async || match std::env::var("E2E_CLUSTER") {
        Ok(name) => ControlPlane::named(&name).await,
        Err(_) => ControlPlane::start().await,
    };
    PLANE.get_or_try_init(start).await
}

async fn stop_when_interrupted() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminated.recv() => {}
    }
    stop().await;
    std::process::exit(130)
}

/// Stops what the tests share.
async fn stop() {
    node::stop().await;
    stop_all().await;
}

async fn run(test: &Test) -> Result<()> {
    let plane = plane().await.context("the control plane did not start")?;
    let folder = folder(test)?;
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let mut case = Case::open(plane, test.name(), &folder).await?;
    let body = AssertUnwindSafe((test.body)(&mut case)).catch_unwind();
    let outcome = match timeout(LIMIT, body).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(anyhow!("panicked: {}", panic_text(panic.as_ref()))),
        Err(_) => Err(anyhow!("did not end within {LIMIT:?}")),
    };
    let outcome = match (outcome, case.close().await) {
        (Err(error), Err(verdict)) => Err(anyhow!("{error:#}\n{verdict:#}")),
        (Ok(()), verdict) => verdict,
        (failed, Ok(())) => failed,
    };
    match &outcome {
        Ok(()) => std::fs::remove_dir_all(&folder)?,
        Err(error) => evidence::collect(&case, &format!("{error:#}")).await,
    }
    plane.audit.forget(&case.namespace);
    outcome.with_context(|| format!("log, objects and events are in {}", folder.display()))
}

/// Where a test keeps its files: target/e2e/NAME, or target/e2e/1.30/NAME on that version of Kubernetes, so that two
/// versions can be tested at the same time.
fn folder(test: &Test) -> Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let target = executable.ancestors().nth(3).context("tests run from target/")?;
    let version = std::env::var_os("E2E_KUBERNETES").unwrap_or_default();
    Ok(target.join("e2e").join(version).join(test.name().replace("::", "/")))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
