//! Adds up the series of a namespace that takes too much room on the page.

use std::collections::BTreeMap;

/// Labels whose values tenants choose; folded series have them empty.
const CHOSEN: [&str; 3] = ["name", "owner", "metric"];

/// The sums of the current family, by the name and the labels of the folded series.
#[derive(Debug, Default)]
pub(super) struct Sums {
    family: String,
    sums: BTreeMap<String, f64>,
}

impl Sums {
    /// Adds a series: durations of gauges are replaced by the longest or shortest one, and all else is added.
    pub(super) fn add(&mut self, line: &str) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            return;
        };
        let Ok(value) = value.parse::<f64>() else {
            return;
        };
        let name = series.split('{').next().unwrap_or_default();
        let is_part =
            ["_bucket", "_sum", "_count", "_total"].iter().any(|part| name.ends_with(part));
        let sum = self.sums.entry(folded(series));
        let sum = sum.or_insert(match name.ends_with("_min") {
            true => f64::INFINITY,
            false => 0.0,
        });
        *sum = match name {
            _ if name.ends_with("_min") => sum.min(value),
            _ if name.contains("_seconds") && !is_part => sum.max(value),
            _ => *sum + value,
        };
    }

    /// The sums, as lines, if this comment begins another family: the series of a family must follow each other.
    pub(super) fn take_of_previous_family(&mut self, comment: &str) -> Vec<String> {
        let family = comment.split(' ').nth(2).unwrap_or_default();
        if family == self.family {
            return Vec::new();
        }
        family.clone_into(&mut self.family);
        let sums = std::mem::take(&mut self.sums);
        let lines = sums.into_iter();
        lines.map(|(series, sum)| format!("{series} {sum}")).collect()
    }
}

/// The series without what tenants choose, except the namespace.
fn folded(series: &str) -> String {
    let Some((name, labels)) = series.split_once('{') else {
        return series.to_owned();
    };
    let labels = labels.trim_end_matches('}');
    let labels = split_labels(labels).map(|(label, value)| match label {
        "gd" => format!("gd=\"{}/\"", value.split('/').next().unwrap_or_default()),
        _ if CHOSEN.contains(&label) => format!("{label}=\"\""),
        _ => format!("{label}=\"{value}\""),
    });
    let labels: Vec<String> = labels.collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// The labels and their values. A value may contain commas and escaped quotes.
fn split_labels(labels: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = labels;
    std::iter::from_fn(move || {
        let (label, value) = rest.split_once("=\"")?;
        let mut is_escaped = false;
        let end = value.find(|it| {
            let is_end = it == '"' && !is_escaped;
            is_escaped = it == '\\' && !is_escaped;
            is_end
        })?;
        rest = value[end + 1..].trim_start_matches(',');
        Some((label, &value[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tenants_choose_is_removed_from_the_labels() {
        for (series, expected) in [
            (r#"a{gd="games/arena"}"#, r#"a{gd="games/"}"#),
            (
                r#"a{le="1",namespace="games",owner="GameDeployment|x",metric="a\",b",phase="Error"}"#,
                r#"a{le="1",namespace="games",owner="",metric="",phase="Error"}"#,
            ),
            ("a", "a"),
        ] {
            assert_eq!(folded(series), expected);
        }
    }
}
