//! How families appear on a metrics page.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;

type Label = [(&'static str, &'static str); 1];

#[derive(Debug)]
struct Families {
    calls: Counts<Label>,
    waits: Timings<Label>,
}

impl Families {
    fn new() -> Self {
        Self { calls: Counts::default(), waits: Timings::with_buckets(&[0.5, 10.0]) }
    }

    fn page(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        page
    }
}

impl Collector for Families {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        self.calls.encode(&mut to, "calls", "Calls")?;
        self.waits.encode_with_extremes(&mut to, "wait_seconds", "Waits")
    }
}

#[test]
fn a_duration_is_counted_in_the_first_bucket_that_holds_it() {
    let families = Families::new();
    for millis in [500, 750, 10_000, 20_000] {
        let took = Duration::from_millis(millis);
        families.waits.observe([("kind", "a")], took);
    }
    let page = families.page();
    for line in [
        "wait_seconds_count{kind=\"a\"} 4",
        "wait_seconds_sum{kind=\"a\"} 31.25",
        "wait_seconds_bucket{le=\"0.5\",kind=\"a\"} 1",
        "wait_seconds_bucket{le=\"10.0\",kind=\"a\"} 3",
        "wait_seconds_bucket{le=\"+Inf\",kind=\"a\"} 4",
        "wait_seconds_max{kind=\"a\"} 20.0",
        "wait_seconds_min{kind=\"a\"} 0.5",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[test]
fn a_family_without_series_is_listed() {
    let page = Families::new().page();
    for line in ["# TYPE calls counter", "# TYPE wait_seconds histogram"] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[test]
fn removed_series_are_not_listed() {
    let families = Families::new();
    families.calls.increment([("kind", "a")]);
    families.calls.increment([("kind", "a")]);
    families.calls.increment([("kind", "b")]);
    families.calls.retain(|[(_, kind)]| *kind == "a");
    let page = families.page();
    assert!(page.contains("calls_total{kind=\"a\"} 2"), "{page}");
    assert!(!page.contains("\"b\""), "{page}");
}

#[test]
fn a_filtered_family_does_not_change_with_the_original() {
    let calls = Counts::default();
    calls.increment([("kind", "a")]);
    calls.increment([("kind", "b")]);
    let filtered = calls.filtered(|[(_, kind)]| *kind == "a");
    calls.increment([("kind", "a")]);
    let counts: Vec<_> = filtered.lock().values().copied().collect();
    assert_eq!(counts, [1]);
}
