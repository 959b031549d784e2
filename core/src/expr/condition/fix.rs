//! Suggests fixes for invalid expressions. Users of bk-bcs and Argo know another language (expr), so its spellings
//! are recognized.

use cel::ParseErrors;

/// Spellings in expr, and what to write in CEL.
const SPELLINGS: [(&str, &str); 13] = [
    (" matches ", "write TEXT.matches(\"PATTERN\") in place of TEXT matches \"PATTERN\""),
    (" contains ", "write TEXT.contains(\"PART\") in place of TEXT contains \"PART\""),
    (" startsWith ", "write TEXT.startsWith(\"START\") in place of TEXT startsWith \"START\""),
    (" endsWith ", "write TEXT.endsWith(\"END\") in place of TEXT endsWith \"END\""),
    ("{#", "write LIST.all(x, x < 3) in place of all(LIST, {# < 3})"),
    (", #", "write LIST.all(x, x < 3) in place of all(LIST, # < 3)"),
    ("{ #", "write LIST.all(x, x < 3) in place of all(LIST, {# < 3})"),
    (" and ", "write && in place of \"and\""),
    (" or ", "write || in place of \"or\""),
    ("not ", "write ! in place of \"not\""),
    ("??", "write default(A, B) in place of A ?? B"),
    ("?.", "write default(A.B, C), or has(A.B), in place of A?.B"),
    ("..", "write x >= A && x <= B in place of x in A..B"),
];

/// The parser's first error in one line, or a known fix.
pub(super) fn parse_errors(source: &str, errors: &ParseErrors) -> String {
    if source.trim().is_empty() {
        return "it is empty: write a condition such as asInt(result) < 30".into();
    }
    if let Some((_, fix)) = SPELLINGS.iter().find(|(spelling, _)| source.contains(spelling)) {
        return format!("it is not CEL: {fix}");
    }
    if is_assignment(source) {
        return "it is not CEL: write == instead of =".into();
    }
    let first = errors.errors.first();
    if first.is_some_and(|error| error.msg.contains("Recursion limit")) {
        return "brackets or operators are nested too deeply: simplify it".into();
    }
    let position = first.map_or(1, |error| error.pos.1.max(1));
    let why = first.map_or("it cannot be parsed", |error| brief(&error.msg));
    format!("it is not CEL at character {position}: {why}")
}

/// The parser's message without its list of expected tokens.
fn brief(message: &str) -> &str {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let message = message.split(" expecting ").next().unwrap_or(message);
    message.lines().next().unwrap_or(message)
}

/// Whether the source contains an = that is not part of a comparison.
fn is_assignment(source: &str) -> bool {
    let bytes = source.as_bytes();
    (0..bytes.len()).any(|at| {
        let neighbor = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied();
        bytes[at] == b'='
            && !matches!(neighbor(at.checked_sub(1)), Some(b'=' | b'!' | b'<' | b'>'))
            && neighbor(Some(at + 1)) != Some(b'=')
    })
}

pub(super) fn unknown_name(name: &str) -> String {
    match name {
        "nil" | "None" => format!("{name} is not known: write null"),
        "True" | "TRUE" => format!("{name} is not known: write true"),
        "False" | "FALSE" => format!("{name} is not known: write false"),
        "args" => "args cannot be used in a condition: use them in the call".into(),
        "not" => "\"not\" is not known: write !".into(),
        _ => format!("{name} is not known: write result or value"),
    }
}

pub(super) fn unknown_function(name: &str) -> String {
    match name {
        "float" | "asDouble" => format!("function {name} is not known: write asFloat"),
        "asInteger" => format!("function {name} is not known: write asInt"),
        "not" => "function not is not known: write ! in place of \"not\"".into(),
        "any" => "function any is not known: write LIST.exists(x, CONDITION ON x)".into(),
        "none" => "function none is not known: write !LIST.exists(x, CONDITION ON x)".into(),
        "one" => "function one is not known: write LIST.exists_one(x, CONDITION ON x)".into(),
        "count" => "function count is not known: write len(LIST.filter(x, CONDITION ON x))".into(),
        "isNil" => "function isNil is not known: write value == null".into(),
        "duration" | "timestamp" => {
            format!("function {name} is not supported: compare numbers or text")
        }
        _ => format!(
            "function {name} is not known: use one of asInt, asFloat, len, isNaN, isInf, default, \
             string, contains, startsWith, endsWith, matches, all, exists, exists_one, map, filter \
             and has"
        ),
    }
}
