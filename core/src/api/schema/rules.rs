//! Common forms of CEL rules.

use kube::core::{Message, Rule};

/// The words that CEL reserves. Newer API servers accept some of them as names of fields; those of Kubernetes 1.30 do
/// not.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The name of a field in rules: API servers of all versions know a field with a reserved name by this one.
pub(crate) fn escaped(field: &str) -> String {
    if RESERVED.contains(&field) { format!("__{field}__") } else { field.to_owned() }
}

/// A CEL rule whose message is reported at the field `at`. An empty `at` stands for the value that has
/// the rule.
pub(super) fn rule(at: &str, rule: impl Into<String>, message: impl Into<String>) -> Rule {
    let mut rule = Rule::new(rule);
    rule.message = Some(Message::Message(message.into()));
    if !at.is_empty() {
        rule.field_path = Some(format!(".{at}"));
    }
    rule
}

/// Lets an object that already violates the rule continue to do so.
///
/// The API server's ratcheting does this only while the whole value that has the rule is unchanged. That
/// is not enough for a rule on a large part of an object: a workload that is older than the rule and violates
/// it could not be scaled or paused.
pub(super) fn unless_broken_before(mut rule: Rule) -> Rule {
    let old_rule = rule.rule.replace("self.", "old.");
    rule.rule = format!("({}) || oldSelf.optMap(old, !({old_rule})).orValue(false)", rule.rule);
    rule.optional_old_self(true)
}

/// Exactly one of these fields must be set.
pub(crate) fn exactly_one_of(fields: &[&str]) -> Rule {
    let given: Vec<String> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    rule(
        "",
        format!("[{}].exists_one(given, given)", given.join(", ")),
        format!("set exactly one of {}", fields.join(", ")),
    )
}

/// The field cannot change; `instead` tells users what they can do.
pub(crate) fn immutable(instead: &str) -> Rule {
    rule("", "self == oldSelf", format!("cannot be changed; {instead}"))
}
