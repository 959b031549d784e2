//! The text of the page, and its bound.
//!
//! Tenants decide how many series there are, and how long their labels are. A page that exceeds its limit is rendered
//! again, with the namespaces that take the most room folded: the series of such a namespace differ only in labels that
//! do not name a workload or metric, and their values are added. So all other namespaces keep their series, and a scrape
//! never fails.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use axum::body::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::fold::Sums;

/// The longest page, in bytes. Prometheus itself has no limit, but 60,000 series take long to store.
const MAX_PAGE: usize = 56 << 20;
/// The length of the pieces in which a page is stored and sent.
const PIECE: usize = 64 << 10;

/// A page, in pieces.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Page {
    /// A page that consists of a single piece.
    pub(crate) fn of(text: &'static str) -> Self {
        Self { pieces: vec![Bytes::from_static(text.as_bytes())], length: text.len() }
    }

    /// The length, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// One of its pieces.
    pub(crate) fn piece(&self, index: usize) -> Option<Bytes> {
        self.pieces.get(index).cloned()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        let pieces = self.pieces.iter();
        pieces.map(|it| String::from_utf8_lossy(it)).collect()
    }
}

/// The page of a registry, with the bounds of buckets as Go programs write them.
pub(super) fn render(registry: &Registry) -> Result<Page, fmt::Error> {
    render_within(registry, MAX_PAGE)
}

fn render_within(registry: &Registry, max: usize) -> Result<Page, fmt::Error> {
    let mut writer = Writer::new(max, BTreeSet::new());
    encode(&mut writer, registry)?;
    if writer.written <= max {
        return Ok(writer.into_page());
    }
    let folded = writer.largest_namespaces();
    let mut writer = Writer::new(max, folded);
    encode(&mut writer, registry)?;
    Ok(writer.into_page())
}

/// Receives the page, line by line.
struct Writer {
    max: usize,
    /// The namespaces whose series are added up.
    folded: BTreeSet<String>,
    line: String,
    /// The current piece.
    piece: Vec<u8>,
    page: Page,
    /// The length of all lines, including those that were left out because the page is too long.
    written: usize,
    by_namespace: HashMap<String, usize>,
    sums: Sums,
}

impl Writer {
    fn new(max: usize, folded: BTreeSet<String>) -> Self {
        Self {
            max,
            folded,
            line: String::new(),
            piece: Vec::new(),
            page: Page::default(),
            written: 0,
            by_namespace: HashMap::new(),
            sums: Sums::default(),
        }
    }

    /// The namespaces that take the most room, as many as are needed for the others to fit.
    fn largest_namespaces(&self) -> BTreeSet<String> {
        let mut sizes: Vec<_> = self.by_namespace.iter().collect();
        sizes.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
        // Room for the sums.
        let target = self.max - self.max / 8;
        let mut remaining = self.written;
        let too_large = sizes.into_iter().take_while(|(_, size)| {
            let is_too_long = remaining > target;
            remaining -= **size;
            is_too_long
        });
        too_large.map(|(namespace, _)| namespace.clone()).collect()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.starts_with('#') {
            for sum in self.sums.take_of_previous_family(&line) {
                self.store(&sum, true);
            }
            return self.store(&line, false);
        }
        let line = with_short_bound(&line);
        let namespace = namespace_of(&line);
        let Some(namespace) = namespace else {
            return self.store(&line, false);
        };
        match self.folded.contains(namespace) {
            true => self.sums.add(&line),
            false => {
                let size = line.len() + 1;
                match self.by_namespace.get_mut(namespace) {
                    Some(sum) => *sum += size,
                    None => drop(self.by_namespace.insert(namespace.to_owned(), size)),
                }
                self.store(&line, true);
            }
        }
    }

    /// Stores a line, unless it is a namespace's and the page is too long.
    fn store(&mut self, line: &str, is_of_namespace: bool) {
        self.written += line.len() + 1;
        if is_of_namespace && self.written > self.max {
            return;
        }
        self.piece.extend_from_slice(line.as_bytes());
        self.piece.push(b'\n');
        if self.piece.len() >= PIECE {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.page.length += piece.len();
        self.page.pieces.push(piece);
    }

    fn into_page(mut self) -> Page {
        self.end_piece();
        self.page
    }
}

impl fmt::Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut lines = text.split('\n');
        self.line.push_str(lines.next().unwrap_or_default());
        for next in lines {
            self.end_line();
            self.line.push_str(next);
        }
        Ok(())
    }
}

/// The namespace in the labels of a series.
fn namespace_of(line: &str) -> Option<&str> {
    let labels = line.split_once('{')?.1;
    let value = |label: &str| {
        let start = labels.find(label)?;
        let is_whole = start == 0 || labels.as_bytes()[start - 1] == b',';
        let value = &labels[start + label.len()..];
        value.split('"').next().filter(|_| is_whole)
    };
    let gd = || value("gd=\"")?.split('/').next();
    value("namespace=\"").or_else(gd)
}

/// Writes a bound that is a whole number without `.0`: dashboards made for bk-bcs select `le="10"`, not `le="10.0"`.
fn with_short_bound(line: &str) -> String {
    const LABEL: &str = "{le=\"";
    let Some((name, rest)) = line.split_once(LABEL) else {
        return line.to_owned();
    };
    let (bound, rest) = rest.split_once('"').unwrap_or((rest, ""));
    let bound = bound.strip_suffix(".0").unwrap_or(bound);
    format!("{name}{LABEL}{bound}\"{rest}")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;

    use super::*;
    use crate::runtime::metrics::{Counts, Timings, encode_family};

    #[test]
    fn bounds_are_written_as_go_writes_them() {
        let page = "# HELP a_seconds A\n\
                    a_seconds_bucket{le=\"0.5\",gd=\"a/b-1.0\"} 1\n\
                    a_seconds_bucket{le=\"10.0\",gd=\"a/b-1.0\"} 2\n\
                    a_seconds_bucket{le=\"+Inf\",gd=\"a/b-1.0\"} 2\n\
                    a_seconds_max{gd=\"a/b-1.0\"} 2.0\n# EOF\n";
        let mut writer = Writer::new(MAX_PAGE, BTreeSet::new());
        writer.write_str(page).expect("a page");
        let short = page.replace("le=\"10.0\"", "le=\"10\"");
        assert_eq!(writer.into_page().text(), short);
    }

    #[test]
    fn the_namespace_is_that_of_the_label() {
        for (line, expected) in [
            (r#"a{gd="games/arena"} 1"#, Some("games")),
            (r#"a{le="1",namespace="games",name="x"} 1"#, Some("games")),
            (r#"a{kind="pod",other_namespace="games"} 1"#, None),
            ("a 1", None),
        ] {
            assert_eq!(namespace_of(line), expected, "{line}");
        }
    }

    #[derive(Debug)]
    struct Tenants;

    type Labels = [(&'static str, String); 3];

    impl Collector for Tenants {
        fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
            let labels = |namespace: &str, workload: usize| -> Labels {
                let kind = ("kind", "GameDeployment".to_owned());
                let name = format!("{namespace}-{workload:0>60}");
                [kind, ("namespace", namespace.to_owned()), ("name", name)]
            };
            let tenants = [("greedy", 3_000), ("large", 300), ("small", 3)];
            let all = || {
                let all = tenants.into_iter();
                all.flat_map(|(namespace, count)| (1..=count).map(move |it| labels(namespace, it)))
            };
            let (counts, timings) = (Counts::<Labels>::default(), Timings::with_buckets(&[1.0]));
            for labels in all() {
                counts.increment(labels.clone());
                timings.observe(labels, std::time::Duration::from_secs(2));
            }
            counts.encode(&mut to, "pods", "Pods")?;
            timings.encode_with_extremes(&mut to, "took_seconds", "Took")?;
            let waits = all().enumerate().map(|(index, labels)| (labels, index as f64));
            encode_family(&mut to, "wait_seconds", "Longest wait", waits)
        }
    }

    #[test]
    fn a_page_that_is_too_long_folds_the_largest_namespaces_and_no_others() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Tenants));
        let page = render_within(&registry, 800_000).expect("a page");
        assert!(page.length() <= 800_000, "{}", page.length());
        let text = page.text();
        let lines = |start: &str| text.lines().filter(|it| it.starts_with(start)).count();
        let of = |metric: &str, namespace: &str| {
            lines(&format!("{metric}{{kind=\"GameDeployment\",namespace=\"{namespace}\""))
        };
        assert_eq!(of("pods_total", "large"), 300);
        assert_eq!(of("pods_total", "small"), 3);
        let folded = r#"{kind="GameDeployment",namespace="greedy",name=""}"#;
        for expected in [
            format!("pods_total{folded} 3000"),
            format!("took_seconds_count{folded} 3000"),
            format!("took_seconds_sum{folded} 6000"),
            format!("took_seconds_min{folded} 2"),
            format!("wait_seconds{folded} 2999"),
        ] {
            assert!(text.lines().any(|it| it == expected), "{expected}");
        }
        assert_eq!(of("pods_total", "greedy"), 1);
        assert!(text.ends_with("# EOF\n"));
        // Each family is in one place, as the format requires.
        let types = text.lines().filter(|it| it.starts_with("# TYPE"));
        assert_eq!(types.count(), 5);
        let whole = render(&registry).expect("a page");
        assert!(whole.length() > 2_000_000 && whole.pieces.len() > 10);
    }

    /// Sums of many namespaces.
    #[derive(Debug)]
    struct ManyTenants;

    impl Collector for ManyTenants {
        fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
            let counts = Counts::<Labels>::default();
            for number in 0..3_000 {
                let namespace = ("namespace", format!("tenant-{number}"));
                let (kind, name) =
                    (("kind", "GameDeployment".to_owned()), ("name", "a".to_owned()));
                counts.increment([kind, namespace, name]);
            }
            counts.encode(&mut to, "pods", "Pods")
        }
    }

    #[test]
    fn a_page_is_cut_if_even_its_sums_are_too_long() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ManyTenants));
        let page = render_within(&registry, 50_000).expect("a page");
        assert!((40_000..51_000).contains(&page.length()), "{}", page.length());
        assert!(page.text().ends_with("# EOF\n"));
    }
}
