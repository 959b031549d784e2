//! Conditions: CEL on `result` (what the jsonPath selects, a scalar as text) and `value` (the same,
//! typed).
//!
//! The grammar is that of the crate `cel`; its evaluator is not used. A hook needs three things
//! that it does not offer: a budget that bounds time and memory whatever the input (it copies
//! values and counts nothing); comparisons of text with numbers as errors rather than as false
//! (`result != 0` would pass on the text "0"); and messages that tell what to write. So a source is
//! parsed, checked ([`compile`]) and evaluated by a small tree walk ([`eval`]) that borrows the
//! answer and pays for every step.
//!
//! Parsing recurses deeply in the parser: call [`Condition::compile`] on a thread with a stack of
//! [`STACK_BYTES`](super::STACK_BYTES).

mod compile;
mod eval;
mod fix;
mod functions;
#[cfg(test)]
mod tests;
mod value;

pub use value::Subject;

use compile::Node;

/// Why a condition cannot be read or decided. Names the expression and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expression}: {why}")]
pub struct ConditionError {
    expression: String,
    why: String,
}

impl ConditionError {
    /// What is wrong, without the expression.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// A condition that has been read and checked.
#[derive(Debug)]
pub struct Condition {
    source: String,
    root: Node,
}

impl Condition {
    /// Reads and checks an expression.
    ///
    /// # Errors
    /// When it is not CEL, uses a name or function that does not exist, or is beyond a limit.
    pub fn compile(source: &str) -> Result<Self, ConditionError> {
        match compile::compile(source) {
            Ok(root) => Ok(Condition {
                source: source.to_owned(),
                root,
            }),
            Err(why) => Err(ConditionError {
                expression: shown(source),
                why,
            }),
        }
    }

    /// Whether it compares `result` as it is with a number.
    pub fn compares_result_with_number(&self) -> bool {
        self.root.compares_result_with_number()
    }

    /// Whether it compares `result` as it is with text.
    pub fn compares_result_with_text(&self) -> bool {
        self.root.compares_result_with_text()
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// When it cannot be decided: a value is missing or of another kind, or it takes too many steps.
    pub fn holds(&self, subject: &Subject<'_>) -> Result<bool, ConditionError> {
        self.fits(subject)
            .and_then(|()| eval::holds(&self.root, subject))
            .map_err(|why| ConditionError {
                expression: shown(&self.source),
                why,
            })
    }

    /// Refuses what would be decided by the kind of `result` rather than by what was answered; also
    /// where another part of the expression would decide it.
    fn fits(&self, subject: &Subject<'_>) -> Result<(), String> {
        if subject.result_is_text() && self.root.compares_result_with_number() {
            return Err(
                "result is text, and is compared with a number: write asInt(result) or \
                        asFloat(result)"
                    .into(),
            );
        }
        if subject.is_filtered() && self.root.takes_result_for_list() {
            return Err(
                "with a filter in jsonPath, result is the match itself when there is one, \
                        and not a list: write value in place of result"
                    .into(),
            );
        }
        Ok(())
    }
}

/// An expression as it is shown in a message.
fn shown(source: &str) -> String {
    match source.char_indices().nth(120) {
        Some((end, _)) => format!("{}...", &source[..end]),
        None => source.to_owned(),
    }
}
