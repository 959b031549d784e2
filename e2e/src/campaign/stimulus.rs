//! The actions on a workload, its hooks and its operator during a history.

use std::fmt;

use anyhow::Result;
use serde_json::{Value, json};

use crate::case::Case;
use crate::servers::hook_server::Answer;

/// Path of the hook on the case's hook server.
pub const HOOK: &str = "/is-empty";

/// An action at a point in time.
#[derive(Clone, Debug, PartialEq)]
pub enum Stimulus {
    /// A user scales.
    Scale(i64),
    /// A user sets an image by its tag.
    Image(String),
    /// A user pauses, or resumes.
    Pause(bool),
    /// A user retries failed hooks.
    Retry,
    /// Hooks give another answer from now on.
    Answer(HookAnswer),
    /// The operator is killed (kill -9) and restarted.
    Kill,
    /// The operator's wall clock jumps to this offset in seconds.
    Clock(i64),
}

/// What the hooks answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// The pod may be deleted or updated.
    Yes,
    /// The pod has players.
    No,
    /// An HTTP 500.
    Error,
}

impl HookAnswer {
    /// The hook server's response.
    pub fn response(self) -> Answer {
        match self {
            HookAnswer::Yes => Answer::Json(json!({"age": 45})),
            HookAnswer::No => Answer::Json(json!({"age": 12})),
            HookAnswer::Error => Answer::Status(500),
        }
    }
}

impl Stimulus {
    /// Applies what a user or a hook does. The caller handles kills and clock jumps.
    pub async fn apply(&self, case: &Case) -> Result<()> {
        match self {
            Stimulus::Scale(replicas) => set(case, "/spec/replicas", *replicas).await,
            Stimulus::Image(tag) => {
                let path = "/spec/template/spec/containers/0/image";
                set(case, path, format!("game:{tag}")).await
            }
            Stimulus::Pause(paused) => set(case, "/spec/updateStrategy/paused", *paused).await,
            Stimulus::Retry => retry(case).await,
            Stimulus::Answer(answer) => {
                case.hooks.answer(HOOK, answer.response());
                Ok(())
            }
            Stimulus::Kill | Stimulus::Clock(_) => Ok(()),
        }
    }
}

async fn set(case: &Case, path: &str, value: impl Into<Value>) -> Result<()> {
    let operation = json!([{"op": "add", "path": path, "value": value.into()}]);
    case.plane().patch(&case.path(), &operation).await?;
    Ok(())
}

/// Sets `retry` for each PreDelete, PreInplace and PostInplace hook of the workload.
async fn retry(case: &Case) -> Result<()> {
    let workload = case.plane().get(&case.path()).await?;
    let points = ["preDelete", "preInplace", "postInplace"];
    let strategies = points.map(|point| format!("/spec/{point}UpdateStrategy"));
    let has_hook = |it: &&String| workload.pointer(&format!("{it}/hook")).is_some();
    let set_retry = |it| json!({"op": "add", "path": format!("{it}/retry"), "value": true});
    let operations = strategies.iter().filter(has_hook).map(set_retry).collect();
    let operations = Value::Array(operations);
    case.plane().patch(&case.path(), &operations).await?;
    Ok(())
}

impl fmt::Display for Stimulus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stimulus::Scale(replicas) => write!(f, "scale to {replicas}"),
            Stimulus::Image(tag) => write!(f, "image {tag}"),
            Stimulus::Pause(true) => write!(f, "pause"),
            Stimulus::Pause(false) => write!(f, "resume"),
            Stimulus::Retry => write!(f, "retry"),
            Stimulus::Answer(HookAnswer::Yes) => write!(f, "hooks answer yes"),
            Stimulus::Answer(HookAnswer::No) => write!(f, "hooks answer no"),
            Stimulus::Answer(HookAnswer::Error) => write!(f, "hooks answer 500"),
            Stimulus::Kill => write!(f, "kill -9"),
            Stimulus::Clock(seconds) => write!(f, "clock {seconds:+} s"),
        }
    }
}
