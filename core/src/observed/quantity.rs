//! Kubernetes quantities (500m, 0.5, 1Gi, 1e3) compared by value.

use serde_json::Value;

/// The canonical form of a quantity, in thousandths of the base unit. Other strings are returned unchanged.
pub fn canonical(value: &Value) -> String {
    let text = text(value);
    match milli(&text) {
        Some(milli) => format!("{milli}m"),
        None => text,
    }
}

/// The text of a quantity, which a manifest may contain as a number.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    }
}

/// A quantity in thousandths of the base unit, rounded up as the API server does. None if it is not a quantity, or is
/// out of range.
pub fn milli(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (digits, decimals) = decimal(number)?;
    let (factor, exponent): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let power = exponent.checked_add(3)?.checked_sub(decimals)?;
    let value = digits.checked_mul(factor)?;
    let scale = 10_i128.checked_pow(power.unsigned_abs())?;
    if power >= 0 { value.checked_mul(scale) } else { Some((value + scale - 1).div_euclid(scale)) }
}

/// The digits of a decimal number as an integer, and how many of them are decimals: (125, 2) for "1.25".
fn decimal(text: &str) -> Option<(i128, i32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, i32::try_from(fraction.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_quantities_have_the_same_canonical_form() {
        for (a, b) in [
            (json!("500m"), json!(0.5)),
            (json!("1Gi"), json!("1024Mi")),
            (json!("1e3"), json!("1k")),
            (json!(2), json!("2")),
            (json!("1.5Gi"), json!("1536Mi")),
            (json!("100u"), json!("1m")),
        ] {
            assert_eq!(canonical(&a), canonical(&b), "{a} and {b}");
        }
        assert_ne!(canonical(&json!("1G")), canonical(&json!("1Gi")));
        assert_eq!(canonical(&json!("much")), "much");
    }
}
