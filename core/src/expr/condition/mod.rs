//! Conditions: CEL expressions over `value` (what jsonPath selects) and `result` (the same selection, but with a scalar
//! converted to text, except where true or false is needed, as in `result == true`).
//!
//! The parser comes from the `cel` crate. Its evaluator is not used, because it lacks three things: a limit on time and
//! memory for any input; errors for comparisons of text with numbers (`result != 0` would hold for the text "0"); and
//! messages that suggest what to write. So [`compile`] parses and checks an expression, and [`eval`] evaluates it in a
//! small tree walk that borrows the response and counts every step.
//!
//! The parser recurses deeply: call [`Condition::compile`] on a thread with a stack of
//! [`STACK_BYTES`](super::STACK_BYTES).

mod compile;
mod eval;
mod fix;
mod functions;
mod operators;
#[cfg(test)]
mod tests;
mod value;

pub use value::Subject;

use crate::text::truncate;
use compile::Node;

/// The longest expression in a message, in characters.
const MAX_SHOWN: usize = 120;

/// Why a condition is invalid or cannot be evaluated. Contains the expression and a fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expression}: {why}")]
pub struct ConditionError {
    expression: String,
    why: String,
}

impl ConditionError {
    /// The message without the expression.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// A parsed and checked condition.
///
/// ```
/// use gamekeeper_core::expr::{Condition, Subject, on_deep_stack};
///
/// let holds = on_deep_stack(|| {
///     let condition = Condition::compile("asInt(result) < 30")?;
///     condition.holds(&Subject::text("12"))
/// });
/// assert_eq!(holds, Ok(Ok(true)));
/// ```
#[derive(Debug)]
pub struct Condition {
    source: String,
    root: Node,
}

impl Condition {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// If it is not CEL, uses an unknown name or function, or exceeds a limit.
    pub fn compile(source: &str) -> Result<Self, ConditionError> {
        match compile::compile(source) {
            Ok(root) => Ok(Condition { source: source.to_owned(), root }),
            Err(why) => Err(ConditionError { expression: truncate(source, MAX_SHOWN), why }),
        }
    }

    /// Whether the condition compares `result` itself with a number.
    pub fn compares_result_with_number(&self) -> bool {
        self.root.compares_result_with_number()
    }

    /// Whether the condition compares `result` itself with text.
    pub fn compares_result_with_text(&self) -> bool {
        self.root.compares_result_with_text()
    }

    /// Whether the condition uses `result` itself as true or false.
    pub fn uses_result_as_truth(&self) -> bool {
        self.root.uses_result_as_truth()
    }

    /// Evaluates the condition.
    ///
    /// # Errors
    /// If a value is missing or of the wrong type, or the evaluation takes too many steps.
    pub fn holds(&self, subject: &Subject<'_>) -> Result<bool, ConditionError> {
        self.check_types(subject)
            .and_then(|()| eval::holds(&self.root, subject))
            .map_err(|why| ConditionError { expression: truncate(&self.source, MAX_SHOWN), why })
    }

    /// Refuses an expression if the outcome of any part of it would depend on the type of `result` rather than on its
    /// value. Parts that do not affect the outcome of the whole expression are checked too.
    fn check_types(&self, subject: &Subject<'_>) -> Result<(), String> {
        if subject.result_is_text() && self.root.compares_result_with_number() {
            return Err("result is text, and is compared with a number: write asInt(result) or \
                        asFloat(result)"
                .into());
        }
        if subject.is_filtered() && self.root.uses_result_as_list() {
            return Err(
                "with a filter in jsonPath, result is not a list when there is exactly one match: \
                        write value in place of result"
                    .into(),
            );
        }
        Ok(())
    }
}
