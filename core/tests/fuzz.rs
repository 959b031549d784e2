//! Hostile input: whatever a template or a response contains, nothing panics, no stack overflows,
//! and no call takes more than 200 ms or 64 MiB.
//!
//! `FUZZ_INPUTS` is the number of inputs of each kind (20,000 by default), `FUZZ_SEED` the seed of the
//! series. A failure shows the input, its number and the seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gamekeeper_core::expr::jsonpath::JsonPath;
use gamekeeper_core::expr::{Condition, Document};
use gamekeeper_core::plan::hook_run::{Allowance, fill};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Maximum time for one call. Debug builds are about ten times slower than release builds.
const MAX_TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 200 });
const MAX_MEMORY: usize = 64 << 20;
/// The stack size of threads that evaluate users' expressions, in bytes.
const STACK: usize = 16 << 20;

/// An xorshift64* generator: small, and with the same results everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A sequence of words, some of them repeated many times.
    fn words(&mut self, from: &[&str], longest: usize) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(24) {
            let word = self.pick(from);
            let times = match self.below(40) {
                0 => 1 + self.below(400),
                1..=4 => 2 + self.below(8),
                _ => 1,
            };
            for _ in 0..times {
                text.push_str(word);
            }
            if text.len() > longest {
                break;
            }
        }
        text
    }

    /// Returns the text; in a third of all cases, some bytes are inserted, removed, changed or repeated.
    fn mutate(&mut self, text: String) -> String {
        if self.below(3) > 0 {
            return text;
        }
        let mut bytes = text.into_bytes();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 => bytes.insert(at, self.next() as u8),
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                2 if at < bytes.len() => bytes[at] = self.next() as u8,
                _ => {
                    let end = (at + self.below(20)).min(bytes.len());
                    let part = bytes[at.min(end)..end].to_vec();
                    bytes.extend(part);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Makes a call with each of a series of inputs, and checks each call. It returns whether it produced a result.
fn series(kind: &str, input: impl Fn(&mut Random) -> String, call: impl Fn(&str) -> bool) {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let inputs = setting("FUZZ_INPUTS", 20_000);
    let seed = setting("FUZZ_SEED", 0x6761_6d65);
    let mut random = Random(seed | 1);
    let (mut slowest, mut largest, mut results) = (Duration::ZERO, 0, 0);
    for number in 0..inputs {
        let text = input(&mut random);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let started = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| call(&text)));
        let (time, memory) = (
            started.elapsed(),
            ALLOCATOR.peak_usage().saturating_sub(before),
        );
        let shown: String = text.chars().take(2_000).collect();
        assert!(
            ended.is_ok(),
            "{kind} {number} of seed {seed} panics: {shown:?}"
        );
        assert!(
            time < MAX_TIME,
            "{kind} {number} of seed {seed} takes {time:?}: {shown:?}"
        );
        assert!(
            memory < MAX_MEMORY,
            "{kind} {number} of seed {seed} takes {memory} bytes: {shown:?}"
        );
        results += u64::from(ended.is_ok_and(|result| result));
        slowest = slowest.max(time);
        largest = largest.max(memory);
    }
    println!(
        "{kind}: {inputs} inputs of seed {seed}, {results} with a result, \
         at most {slowest:?} and {largest} bytes a call"
    );
    assert!(
        results > inputs / 50,
        "too few inputs are valid enough to produce a result"
    );
}

/// The type of an expression's value.
#[derive(Clone, Copy)]
enum Kind {
    Truth,
    Number,
    Text,
    List,
}

/// An expression that can be parsed and, in most cases, evaluated.
fn expression(random: &mut Random, kind: Kind, depth: usize) -> String {
    use Kind::{List, Number, Text, Truth};
    if depth == 0 {
        return random.pick(atoms(kind)).to_owned();
    }
    let mut part = |kind| expression(random, kind, depth - 1);
    let [truth, number, text, list] = [Truth, Number, Text, List].map(&mut part);
    let [other_number, other_text, other_list] = [Number, Text, List].map(&mut part);
    match (kind, random.below(6)) {
        (_, 0) => random.pick(atoms(kind)).to_owned(),
        (Truth, 1) => format!(
            "({list}).{}(x, {truth})",
            random.pick(&["all", "exists", "exists_one"])
        ),
        (Truth, 2) => format!(
            "({number}{}{other_number})",
            random.pick(&[" == ", " < ", " >= ", " != "])
        ),
        (Truth, 3) => format!(
            "({text}).{}({other_text})",
            random.pick(&["contains", "matches", "startsWith"])
        ),
        (Truth, 4) => format!("{list}{}{other_list}", random.pick(&[" == ", " != "])),
        (Truth, _) => format!("(!{truth}{}{number} < 3)", random.pick(&[" && ", " || "])),
        (Number, 1) => format!("len({list})"),
        (Number, 2) => format!("default(asInt({text}), {number})"),
        (Number, 3) => format!("({truth} ? {number} : {other_number})"),
        (Number, _) => format!(
            "({number}{}{other_number})",
            random.pick(&[" + ", " - ", " * ", " % "])
        ),
        (Text, 1) => format!("string({number})"),
        (Text, _) => format!("({text} + {other_text})"),
        (List, 1) => format!("({list}).map(x, {number})"),
        (List, 2) => format!("({list}).filter(y, {truth})"),
        (List, 3) => format!("[{number}, {text}, {list}]"),
        (List, _) => format!("({list} + {other_list})"),
    }
}

fn atoms(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Truth => &["true", "false", "x == y", "has(value.a)", "x in value.many"],
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
        Kind::Text => &[
            "'x'",
            "\"(y+)+$\"",
            "value.long",
            "result",
            "value.a.b[2]",
            "y.s",
            "'y{1,900}'",
        ],
        Kind::List => &[
            "[]",
            "[1, 2, 'x']",
            "value.many",
            "value.a.b",
            "value",
            "value.many[3].t",
        ],
    }
}

/// Appends JSON with about `size` values.
fn json_text(random: &mut Random, size: usize, out: &mut String) {
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
                out.push_str(&format!(
                    "{}\"{key}{}\":",
                    if part > 0 { "," } else { "" },
                    part / 3
                ));
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

fn document() -> Value {
    let many: Vec<Value> = (0..2_000)
        .map(|n| json!({"n": n, "s": "playing", "t": [n, null]}))
        .collect();
    json!({"a": {"b": [1, 2.5, "x", null, true, {"c": "d"}]}, "many": many, "long": "y".repeat(50_000)})
}

const EXPRESSION: [&str; 62] = [
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

fn expressions() {
    let document = Document::Json(document());
    let paths = ["{$}", "{$.many}", "{$.long}", "{$.many[?(@.n==1)].s}"]
        .map(|path| JsonPath::parse(path).expect(path));
    let subjects = paths
        .each_ref()
        .map(|path| document.subject(Some(path)).expect("a subject"));
    series(
        "expressions",
        |random| {
            let text = match random.below(3) {
                0 => random.words(&EXPRESSION, 1_100),
                _ => {
                    let depth = 1 + random.below(4);
                    expression(random, Kind::Truth, depth)
                }
            };
            random.mutate(text)
        },
        |text| {
            let condition = Condition::compile(text);
            condition.is_ok_and(|it| it.holds(&subjects[text.len() % subjects.len()]).is_ok())
        },
    );
}

const PATH: [&str; 40] = [
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

const STEP: [&str; 14] = [
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

fn paths() {
    let document = Document::Json(document());
    series(
        "jsonPaths",
        |random| {
            let text = match random.below(3) {
                0 => random.words(&PATH, 4_200),
                1 => format!("{{$.many{}}}", random.words(&PATH, 4_200)),
                _ => {
                    let steps = (0..=random.below(5)).map(|_| random.pick(&STEP));
                    format!("{{$.many{}}}", steps.collect::<String>())
                }
            };
            random.mutate(text)
        },
        |text| {
            let path = JsonPath::parse(text);
            path.is_ok_and(|path| {
                document
                    .subject(Some(&path))
                    .is_ok_and(|subject| !subject.shown().is_empty())
            })
        },
    );
}

const ARGUMENT: [&str; 16] = [
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

fn arguments() {
    let long = "v".repeat(1_000);
    series(
        "arguments",
        |random| {
            let text = random.words(&ARGUMENT, 60_000);
            random.mutate(text)
        },
        |text| {
            let filled = fill(text, &mut Allowance::default(), |name| match name {
                "a" => Some("value"),
                "b" => Some(&long),
                _ => None,
            });
            filled.is_ok()
        },
    );
}

const BODY: [&str; 26] = [
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

fn bodies() {
    let paths = [
        "{$.a}",
        "{$..a}",
        "{$.many[*].n}",
        "{..[?(@.n==1)].s}",
        "{range ..*}{@}{end}",
    ];
    let paths = paths.map(|path| JsonPath::parse(path).expect(path));
    let sources = [
        "len(value) > 0",
        "asInt(result) < 30",
        "value.all(x, value.exists(y, x == y))",
    ];
    let conditions = sources.map(|source| Condition::compile(source).expect(source));
    series(
        "response bodies",
        |random| {
            let size = if random.below(2_000) == 0 {
                1 << 19
            } else {
                1_000
            };
            let mut text = String::new();
            match random.below(4) {
                0 => text = random.words(&BODY, 4 * size),
                1 => {
                    // JSON that takes the most memory per byte.
                    let part = random.pick(&["{},", "[],", "{\"\":1},", "[[1]],", "1,", "\"\","]);
                    text = format!("[{}1]", part.repeat(random.below(size)));
                }
                _ => json_text(random, size, &mut text),
            }
            random.mutate(text)
        },
        |text| {
            let Ok(document) = Document::read(text.as_bytes()) else {
                return false;
            };
            // One of each, chosen by the text itself, so that a failure can be reproduced.
            let path = paths.get(text.len() % (paths.len() + 1));
            let condition = &conditions[text.len() / 7 % conditions.len()];
            document.subject(path).is_ok_and(|subject| {
                !subject.shown().is_empty() && condition.holds(&subject).is_ok()
            })
        },
    );
}

/// The series run one after the other, because the allocator counts the memory of all threads.
#[test]
fn no_user_input_panics_or_exceeds_the_limits() {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(|| {
        expressions();
        paths();
        arguments();
        bodies();
    });
    let ended = thread.expect("a thread").join();
    assert!(ended.is_ok(), "a series failed, see above");
}
