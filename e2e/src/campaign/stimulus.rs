//! What happens to a history's workload and operator at a moment.

use std::fmt;

use anyhow::Result;
use serde_json::{Value, json};

use crate::case::Case;
use crate::servers::hook_server::Answer;

/// Path of the hook's answer at the harness' hook server.
pub const HOOK: &str = "/may-it-go";

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
    /// A user scales.
    Scale(i64),
    /// A user sets an image by its tag.
    Image(String),
    /// A user pauses, or resumes.
    Pause(bool),
    /// A user has hooks asked again.
    Retry,
    /// Hooks say something else from now on.
    Hook(Says),
    /// kill -9 of the operator, and a start.
    Kill,
    /// The operator's wall clock is so many seconds wrong from now on.
    Clock(i64),
}

/// What hooks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Yes: the pod may go.
    Yes,
    /// No: players are on it.
    No,
    /// 500.
    Nonsense,
}

impl Says {
    /// What the hook server answers.
    pub fn answer(self) -> Answer {
        match self {
            Says::Yes => Answer::Json(json!({"age": 45})),
            Says::No => Answer::Json(json!({"age": 12})),
            Says::Nonsense => Answer::Status(500),
        }
    }
}

impl Moment {
    /// Does what a user or a hook does; what happens to the operator is left to others.
    pub async fn happen(&self, case: &Case) -> Result<()> {
        match self {
            Moment::Scale(replicas) => set(case, "/spec/replicas", *replicas).await,
            Moment::Image(tag) => {
                let path = "/spec/template/spec/containers/0/image";
                set(case, path, format!("game:{tag}")).await
            }
            Moment::Pause(paused) => set(case, "/spec/updateStrategy/paused", *paused).await,
            Moment::Retry => retry(case).await,
            Moment::Hook(says) => {
                case.hooks.answer(HOOK, says.answer());
                Ok(())
            }
            Moment::Kill | Moment::Clock(_) => Ok(()),
        }
    }
}

async fn set(case: &Case, path: &str, value: impl Into<Value>) -> Result<()> {
    let operation = json!([{"op": "add", "path": path, "value": value.into()}]);
    case.plane().patch(&case.path(), &operation).await?;
    Ok(())
}

/// Sets `retry` of each hook that the workload has.
async fn retry(case: &Case) -> Result<()> {
    let workload = case.plane().get(&case.path()).await?;
    let points = ["preDelete", "preInplace", "postInplace"];
    let strategies = points.map(|point| format!("/spec/{point}UpdateStrategy"));
    let has_hook = |it: &&String| workload.pointer(&format!("{it}/hook")).is_some();
    let retry = |it| json!({"op": "add", "path": format!("{it}/retry"), "value": true});
    let operations = strategies.iter().filter(has_hook).map(retry).collect();
    let operations = Value::Array(operations);
    case.plane().patch(&case.path(), &operations).await?;
    Ok(())
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Scale(replicas) => write!(f, "scale to {replicas}"),
            Moment::Image(tag) => write!(f, "image {tag}"),
            Moment::Pause(true) => write!(f, "pause"),
            Moment::Pause(false) => write!(f, "resume"),
            Moment::Retry => write!(f, "retry"),
            Moment::Hook(Says::Yes) => write!(f, "hooks say yes"),
            Moment::Hook(Says::No) => write!(f, "hooks say no"),
            Moment::Hook(Says::Nonsense) => write!(f, "hooks answer 500"),
            Moment::Kill => write!(f, "kill -9"),
            Moment::Clock(seconds) => write!(f, "clock {seconds:+} s"),
        }
    }
}
