//! The inputs: words that are combined at random, and generators of mostly valid texts, which get past the parsers.

use serde_json::{Value, json};

use crate::random::Random;

/// The type of an expression's value.
#[derive(Clone, Copy)]
pub enum Kind {
    Bool,
    Number,
    Text,
    List,
}

/// An expression that can be parsed and, in most cases, evaluated.
pub fn expression(random: &mut Random, kind: Kind, depth: usize) -> String {
    use Kind::{Bool, List, Number, Text};
    if depth == 0 {
        return random.pick(atoms(kind)).to_owned();
    }
    let mut part = |kind| expression(random, kind, depth - 1);
    let [boolean, number, text, list] = [Bool, Number, Text, List].map(&mut part);
    let [other_number, other_text, other_list] = [Number, Text, List].map(&mut part);
    match (kind, random.below(6)) {
        (_, 0) => random.pick(atoms(kind)).to_owned(),
        (Bool, 1) => {
            format!("({list}).{}(x, {boolean})", random.pick(&["all", "exists", "exists_one"]))
        }
        (Bool, 2) => {
            format!("({number}{}{other_number})", random.pick(&[" == ", " < ", " >= ", " != "]))
        }
        (Bool, 3) => format!(
            "({text}).{}({other_text})",
            random.pick(&["contains", "matches", "startsWith"])
        ),
        (Bool, 4) => format!("{list}{}{other_list}", random.pick(&[" == ", " != "])),
        (Bool, _) => format!("(!{boolean}{}{number} < 3)", random.pick(&[" && ", " || "])),
        (Number, 1) => format!("len({list})"),
        (Number, 2) => format!("default(asInt({text}), {number})"),
        (Number, 3) => format!("({boolean} ? {number} : {other_number})"),
        (Number, _) => {
            format!("({number}{}{other_number})", random.pick(&[" + ", " - ", " * ", " % "]))
        }
        (Text, 1) => format!("string({number})"),
        (Text, _) => format!("({text} + {other_text})"),
        (List, 1) => format!("({list}).map(x, {number})"),
        (List, 2) => format!("({list}).filter(y, {boolean})"),
        (List, 3) => format!("[{number}, {text}, {list}]"),
        (List, _) => format!("({list} + {other_list})"),
    }
}

fn atoms(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Bool => &["true", "false", "x == y", "has(value.a)", "x in value.many"],
        Kind::Number => &[
            "1",
            "-7",
            "2.5",
            "1e308",
            "len(value)",
            "value.a.b[0]",
            "x",
            "x.n",
            "9007199254740993",
        ],
        Kind::Text => {
            &["'x'", "\"(y+)+$\"", "value.long", "result", "value.a.b[2]", "y.s", "'y{1,900}'"]
        }
        Kind::List => &["[]", "[1, 2, 'x']", "value.many", "value.a.b", "value", "value.many[3].t"],
    }
}

/// Appends a random JSON value that consists of at most about `size` values.
pub fn json_text(random: &mut Random, size: usize, out: &mut String) {
    let parts = random.below(size.min(2_000) + 1);
    match random.below(if parts == 0 { 5 } else { 8 }) {
        0 => out.push_str("null"),
        1 => out.push_str(random.pick(&[
            "1",
            "-0.0",
            "2.5",
            "1e300",
            "18446744073709551615",
            "true",
        ])),
        2 => out.push_str(random.pick(&["\"x\"", "\"\"", "\"\\u00fc\"", "\"playing\""])),
        3 => out.push_str("{}"),
        4 => out.push_str("[]"),
        5 => {
            out.push('{');
            for part in 0..parts {
                let key = random.pick(&["a", "b", "n", "s", "many", ""]);
                out.push_str(&format!("{}\"{key}{}\":", if part > 0 { "," } else { "" }, part / 3));
                json_text(random, size / (parts + 1), out);
            }
            out.push('}');
        }
        _ => {
            out.push('[');
            for part in 0..parts {
                if part > 0 {
                    out.push(',');
                }
                json_text(random, size / (parts + 1), out);
            }
            out.push(']');
        }
    }
}

pub fn document() -> Value {
    let many: Vec<Value> =
        (0..2_000).map(|n| json!({"n": n, "s": "playing", "t": [n, null]})).collect();
    json!({"a": {"b": [1, 2.5, "x", null, true, {"c": "d"}]}, "many": many, "long": "y".repeat(50_000)})
}

pub const EXPRESSION_PARTS: [&str; 62] = [
    "result",
    "value",
    "x",
    "y",
    "value.a.b",
    "value.many",
    "value.long",
    "value.many[0].n",
    ".n",
    ".s",
    "asInt(",
    "asFloat(",
    "len(",
    "size(",
    "string(",
    "isNaN(",
    "isInf(",
    "default(",
    "has(",
    "(",
    ")",
    ")",
    ")",
    "[",
    "]",
    "[1,2,3]",
    ".all(x, ",
    ".exists(y, ",
    ".map(x, ",
    ".filter(y, ",
    ".exists_one(x, ",
    ".contains(",
    ".matches(",
    ".startsWith(",
    " == ",
    " != ",
    " < ",
    " >= ",
    " in ",
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " && ",
    " || ",
    "!",
    "-",
    " ? ",
    " : ",
    ", ",
    "1",
    "0",
    "2.5",
    "9223372036854775807",
    "1e308",
    "'a'",
    "\"(a+)+$\"",
    "null",
    "true",
    "{'k': 1}",
    "\u{fc}",
];

pub const PATH_PARTS: [&str; 40] = [
    "{",
    "}",
    "{$",
    "{@",
    "$",
    "@",
    ".",
    "..",
    ".a",
    ".b",
    ".many",
    ".n",
    ".*",
    "[*]",
    "[0]",
    "[-1]",
    "[1:3]",
    "[::2]",
    "[-9:9]",
    "[",
    "]",
    "['a']",
    "['a','b']",
    "['a\\.b']",
    "[?(@.n==1)]",
    "[?(@.s=='playing')]",
    "[?(@.n>5)]",
    "[?(",
    ")]",
    "{range ",
    "{end}",
    "'text'",
    "\"quo\\\"te\"",
    " ",
    ",",
    ":",
    "\\",
    "99999999999999999999",
    "true",
    "\u{1f3ae}",
];

pub const PATH_STEPS: [&str; 14] = [
    "[*]",
    "[0]",
    "[-1]",
    "[1:3]",
    "[::2]",
    "..*",
    "..n",
    "..",
    ".*",
    ".n",
    ".t[0]",
    "['n','s']",
    "[?(@.n>5)]",
    "[?(@.s=='playing')]",
];

pub const ARGUMENT_PARTS: [&str; 16] = [
    "{{",
    "}}",
    "{{ args.a }}",
    "{{args.b}}",
    "{{ args.none }}",
    "args.",
    "a",
    " ",
    "{",
    "}",
    "{{{",
    "}}}",
    "{{ args.",
    "http://",
    "\u{fc}",
    "\0",
];

pub const BODY_PARTS: [&str; 26] = [
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    "{\"a\":",
    "\"a\":",
    "\"many\":",
    "{\"\":",
    "1",
    "-0.0",
    "1e400",
    "99999999999999999999",
    "null",
    "true",
    "\"x\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    ",",
    ":",
    " ",
    "\"",
    "\\",
    "\u{fc}",
    "[{\"n\":1,\"s\":\"playing\"}],",
];
