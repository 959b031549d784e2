//! The text of the page.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The page of a registry, with the bounds of buckets as Go programs write them.
pub(super) fn render(registry: &Registry) -> Result<String, fmt::Error> {
    let mut page = String::new();
    encode(&mut page, registry)?;
    Ok(with_short_bounds(&page))
}

/// Writes bounds that are whole numbers without `.0`: dashboards made for bk-bcs select `le="10"`, not `le="10.0"`.
fn with_short_bounds(page: &str) -> String {
    const LABEL: &str = "{le=\"";
    let mut parts = page.split(LABEL);
    let mut short = parts.next().unwrap_or_default().to_owned();
    short.reserve(page.len());
    for part in parts {
        let (bound, rest) = part.split_once('"').unwrap_or((part, ""));
        short.push_str(LABEL);
        short.push_str(bound.strip_suffix(".0").unwrap_or(bound));
        short.push('"');
        short.push_str(rest);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_as_go_writes_them() {
        let page = "# HELP a_seconds A\n\
                    a_seconds_bucket{le=\"0.5\",gd=\"a/b-1.0\"} 1\n\
                    a_seconds_bucket{le=\"10.0\",gd=\"a/b-1.0\"} 2\n\
                    a_seconds_bucket{le=\"+Inf\",gd=\"a/b-1.0\"} 2\n\
                    a_seconds_max{gd=\"a/b-1.0\"} 2.0\n# EOF\n";
        assert_eq!(
            with_short_bounds(page),
            page.replace("le=\"10.0\"", "le=\"10\"")
        );
    }
}
