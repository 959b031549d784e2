//! Hostile input: whatever a template or a response contains, nothing panics, no stack overflows,
//! and no call takes more than 200 ms or 64 MiB.
//!
//! `FUZZ_INPUTS` is the number of inputs of each kind (20,000 by default), `FUZZ_SEED` the seed of the
//! series. A failure shows the input, its number and the seed.

mod inputs;
mod random;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gamekeeper_core::expr::jsonpath::JsonPath;
use gamekeeper_core::expr::{Condition, Document};
use gamekeeper_core::hook_run::{Allowance, fill};
use peak_alloc::PeakAlloc;

use inputs::{
    ARGUMENT_PARTS, BODY_PARTS, EXPRESSION_PARTS, Kind, PATH_PARTS, PATH_STEPS, document,
    expression, json_text,
};
use random::Random;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Maximum time for one call. Debug builds are about ten times slower than release builds.
const MAX_TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 200 });
const MAX_MEMORY: usize = 64 << 20;
/// The stack size of threads that evaluate users' expressions, in bytes.
const STACK: usize = 16 << 20;

/// Runs `call` with one random input after the other, and checks the time and memory of each run. `call` returns
/// whether there was a result.
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
        let (time, memory) = (started.elapsed(), ALLOCATOR.peak_usage().saturating_sub(before));
        let excerpt: String = text.chars().take(2_000).collect();
        assert!(ended.is_ok(), "{kind} {number} of seed {seed} panics: {excerpt:?}");
        assert!(time < MAX_TIME, "{kind} {number} of seed {seed} takes {time:?}: {excerpt:?}");
        assert!(
            memory < MAX_MEMORY,
            "{kind} {number} of seed {seed} takes {memory} bytes: {excerpt:?}"
        );
        results += u64::from(ended.is_ok_and(|result| result));
        slowest = slowest.max(time);
        largest = largest.max(memory);
    }
    println!(
        "{kind}: {inputs} inputs of seed {seed}, {results} with a result, \
         at most {slowest:?} and {largest} bytes a call"
    );
    assert!(results > inputs / 50, "too few inputs are valid enough to produce a result");
}

fn expressions() {
    let document = Document::Json(document());
    let paths = ["{$}", "{$.many}", "{$.long}", "{$.many[?(@.n==1)].s}"]
        .map(|path| JsonPath::parse(path).expect(path));
    let subjects =
        paths.each_ref().map(|path| document.subject(Some(path), true).expect("a subject"));
    series(
        "expressions",
        |random| {
            let text = match random.below(3) {
                0 => random.words(&EXPRESSION_PARTS, 1_100),
                _ => {
                    let depth = 1 + random.below(4);
                    expression(random, Kind::Bool, depth)
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

fn paths() {
    let document = Document::Json(document());
    series(
        "jsonPaths",
        |random| {
            let text = match random.below(3) {
                0 => random.words(&PATH_PARTS, 4_200),
                1 => format!("{{$.many{}}}", random.words(&PATH_PARTS, 4_200)),
                _ => {
                    let steps = (0..=random.below(5)).map(|_| random.pick(&PATH_STEPS));
                    format!("{{$.many{}}}", steps.collect::<String>())
                }
            };
            random.mutate(text)
        },
        |text| {
            let path = JsonPath::parse(text);
            path.is_ok_and(|path| {
                document.subject(Some(&path), true).is_ok_and(|subject| !subject.shown().is_empty())
            })
        },
    );
}

fn arguments() {
    let long = "v".repeat(1_000);
    series(
        "arguments",
        |random| {
            let text = random.words(&ARGUMENT_PARTS, 60_000);
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

fn bodies() {
    let paths = ["{$.a}", "{$..a}", "{$.many[*].n}", "{..[?(@.n==1)].s}", "{range ..*}{@}{end}"];
    let paths = paths.map(|path| JsonPath::parse(path).expect(path));
    let sources = ["len(value) > 0", "asInt(result) < 30", "value.all(x, value.exists(y, x == y))"];
    let conditions = sources.map(|source| Condition::compile(source).expect(source));
    series(
        "response bodies",
        |random| {
            let size = if random.below(2_000) == 0 { 1 << 19 } else { 1_000 };
            let mut text = String::new();
            match random.below(4) {
                0 => text = random.words(&BODY_PARTS, 4 * size),
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
            // The text's length decides which path and condition are used, so that a failure can be reproduced.
            let path = paths.get(text.len() % (paths.len() + 1));
            let condition = &conditions[text.len() / 7 % conditions.len()];
            document.subject(path, true).is_ok_and(|subject| {
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
