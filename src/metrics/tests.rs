//! What is counted is what is shown, until it is forgotten.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;

type Label = [(&'static str, &'static str); 1];

#[derive(Debug)]
struct Shown {
    calls: Counts<Label>,
    waits: Timings<Label>,
}

impl Collector for Shown {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        self.calls.encode(&mut to, "calls", "Calls")?;
        self.waits.encode(&mut to, "wait_seconds", "Waits")?;
        self.waits.encode_extremes(&mut to, "wait_seconds", "Waits")
    }
}

fn page(shown: Shown) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(shown));
    let mut page = String::new();
    encode(&mut page, &registry).expect("text takes everything");
    page
}

fn nothing() -> Shown {
    Shown {
        calls: Counts::default(),
        waits: Timings::new(|| Timing::new(&[0.5, 10.0])),
    }
}

#[test]
fn a_duration_is_counted_in_the_first_bucket_that_holds_it() {
    let shown = nothing();
    for millis in [500, 750, 10_000, 20_000] {
        shown
            .waits
            .observe([("of", "a")], Duration::from_millis(millis));
    }
    let page = page(shown);
    for line in [
        "wait_seconds_count{of=\"a\"} 4",
        "wait_seconds_sum{of=\"a\"} 31.25",
        "wait_seconds_bucket{le=\"0.5\",of=\"a\"} 1",
        "wait_seconds_bucket{le=\"10.0\",of=\"a\"} 3",
        "wait_seconds_bucket{le=\"+Inf\",of=\"a\"} 4",
        "wait_seconds_max{of=\"a\"} 20.0",
        "wait_seconds_min{of=\"a\"} 0.5",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[test]
fn a_type_is_shown_before_anything_is_counted() {
    let page = page(nothing());
    for line in ["# TYPE calls counter", "# TYPE wait_seconds histogram"] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[test]
fn what_is_forgotten_is_not_shown() {
    let shown = nothing();
    shown.calls.add([("of", "a")]);
    shown.calls.add([("of", "a")]);
    shown.calls.add([("of", "b")]);
    shown.calls.retain(|[(_, of)]| *of == "a");
    let page = page(shown);
    assert!(page.contains("calls_total{of=\"a\"} 2"), "{page}");
    assert!(!page.contains("\"b\""), "{page}");
}

#[test]
fn a_part_is_a_copy() {
    let calls = Counts::default();
    calls.add([("of", "a")]);
    calls.add([("of", "b")]);
    let part = calls.part(|[(_, of)]| *of == "a");
    calls.add([("of", "a")]);
    assert_eq!(part.lock().clone().into_values().collect::<Vec<_>>(), [1]);
}
