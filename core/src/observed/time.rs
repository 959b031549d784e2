//! Durations as users write them, such as `90s` or `1h30m` (Go's syntax, as in bk-bcs), and times.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Maximum duration, in seconds: a century. The limit keeps all later sums within range.
const MAX_SECONDS: f64 = 100.0 * 365.0 * 86_400.0;

/// How far the clock of the leader that wrote a time may be ahead of ours. A time further in the future does not count:
/// a success would be valid for too long, and a pod would wait for too long.
pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Parses a duration: numbers, each with its unit (ns, us, ms, s, m, h), as in `1h30m` or `1.5s`.
///
/// # Errors
/// If the text is not a duration, or the duration is negative or longer than a century. The message is meant for users.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    let refuse = |why: &str| format!("{text:?} is not a duration: {why}, for example 60s or 1m30s");
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if text.starts_with('-') {
        return Err(refuse("it is negative; use a positive one"));
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let (number, unit);
        (number, rest) = split(rest, |c| c.is_ascii_digit() || c == '.');
        (unit, rest) = split(rest, |c| !(c.is_ascii_digit() || c == '.'));
        let number: f64 = number.parse().map_err(|_| refuse("write a number and its unit"))?;
        seconds +=
            number * unit_seconds(unit).ok_or_else(|| refuse("write a number and its unit"))?;
    }
    if text.is_empty() {
        return Err(refuse("it is empty; write a number and its unit"));
    }
    if seconds > MAX_SECONDS {
        return Err(refuse("it is longer than a century; write a shorter one"));
    }
    Ok(SignedDuration::from_secs_f64(seconds))
}

/// Splits before the first character that does not fit.
fn split(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

/// Parses a duration: a number of seconds, which may be a string, or a string such as 90s, 5m or 1h30m. None if it is
/// neither; the schema refuses such values.
pub fn duration(value: &IntOrString) -> Option<SignedDuration> {
    match value {
        IntOrString::Int(seconds) => Some(SignedDuration::from_secs(i64::from(*seconds))),
        IntOrString::String(text) => match text.trim().parse::<i64>() {
            Ok(seconds) => Some(SignedDuration::from_secs(seconds)),
            Err(_) => parse_duration(text.trim()).ok(),
        },
    }
}

/// The earlier of two times at which to plan again.
pub fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Rounds a time down to whole seconds, as the API server stores the times of conditions.
pub fn rounded_down(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Rounds a time up to whole seconds, the precision of times in Kubernetes. Rounding down would end a pause too soon.
pub fn rounded_up(time: Timestamp) -> Timestamp {
    let partial = i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(time.as_second() + partial).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [
            ("60s", 60_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("2h0.5m", 7_230_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(SignedDuration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_an_example() {
        for text in ["", "60", "s", "-5s", "1d", "1..5s", "5 s", "1e9h", "999999999h", "\u{ff11}s"]
        {
            let message = parse_duration(text).expect_err(text);
            assert!(message.contains("for example 60s"), "{message}");
        }
    }

    fn text(value: &str) -> IntOrString {
        IntOrString::String(value.to_owned())
    }

    #[test]
    fn durations_are_seconds_or_text() {
        for (value, seconds) in [
            (IntOrString::Int(60), Some(60)),
            (text("90s"), Some(90)),
            (text("5m"), Some(300)),
            (text("1h30m"), Some(5400)),
            (text("60"), Some(60)),
            (text("soon"), None),
        ] {
            assert_eq!(duration(&value).map(|it| it.as_secs()), seconds, "{value:?}");
        }
    }
}
