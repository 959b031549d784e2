//! Ages in kubectl's format: the longer, the less exact.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The time from `start` to `now`.
pub fn age(start: Option<&Time>, now: Timestamp) -> String {
    match start {
        Some(start) => span(now.duration_since(start.0).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

/// A number of seconds, as kubectl writes durations.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two_units = |whole: i64, unit: &str, remainder: i64, smaller_unit: &str| match remainder {
        0 => format!("{whole}{unit}"),
        _ => format!("{whole}{unit}{remainder}{smaller_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two_units(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () => two_units(days / 365, "y", days % 365, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_as_in_kubectl() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (200, "3m20s"),
            (180, "3m"),
            (3_600, "60m"),
            (4 * 3_600 + 60, "4h1m"),
            (30 * 3_600, "30h"),
            (3 * 86_400 + 3_600, "3d1h"),
            (100 * 86_400, "100d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(span(seconds), expected);
        }
    }
}
