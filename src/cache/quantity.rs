//! Resources of containers: a canonical form to compare, and whether a kubelet has applied them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Canonical JSON of a container's resources; `{}` for none.
pub fn canonical(resources: Option<&ResourceRequirements>) -> String {
    // Serializing maps of strings cannot fail.
    resources
        .map(|resources| serde_json::to_string(resources).unwrap_or_default())
        .unwrap_or_else(|| "{}".to_owned())
}

/// Whether a kubelet reports to run a container with the cpu and memory that its spec wants.
/// A kubelet that reports nothing has applied only "nothing wanted".
pub fn applied(
    wanted: Option<&ResourceRequirements>,
    reported: Option<&ResourceRequirements>,
) -> bool {
    let sides = |pick: fn(&ResourceRequirements) -> Option<&Quantities>| {
        (wanted.and_then(pick), reported.and_then(pick))
    };
    [
        sides(|resources| resources.requests.as_ref()),
        sides(|resources| resources.limits.as_ref()),
    ]
    .into_iter()
    .all(|(wanted, reported)| {
        ["cpu", "memory"].into_iter().all(|name| {
            let amount = |from: Option<&Quantities>| from?.get(name).and_then(nanos);
            let wanted = amount(wanted);
            wanted.is_none() || wanted == amount(reported)
        })
    })
}

type Quantities = BTreeMap<String, Quantity>;

/// A quantity in billionths; None for what is none.
fn nanos(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.trim();
    let unit = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        _ => 1_000_000_000 * whole_factor(unit)?,
    };
    let negative = number.starts_with('-');
    let (whole, fraction) = number
        .trim_start_matches(['+', '-'])
        .split_once('.')
        .unwrap_or((number.trim_start_matches(['+', '-']), ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let amount = digits.checked_mul(factor)? / scale;
    Some(if negative { -amount } else { amount })
}

fn whole_factor(unit: &str) -> Option<i128> {
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = |units: [&str; 7], base: i128| {
        let exponent = units.iter().position(|known| *known == unit)?;
        base.checked_pow(u32::try_from(exponent).ok()?)
    };
    let exponent = || {
        let digits = unit.strip_prefix(['e', 'E'])?;
        10_i128.checked_pow(digits.parse().ok()?)
    };
    power(DECIMAL, 1000)
        .or_else(|| power(BINARY, 1024))
        .or_else(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(requests: &[(&str, &str)]) -> ResourceRequirements {
        let quantities = requests
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        ResourceRequirements {
            requests: Some(quantities.collect()),
            ..Default::default()
        }
    }

    #[test]
    fn equal_amounts_in_other_words_are_equal() {
        let cases = [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1Gi", "1024Mi"),
            ("1e3", "1k"),
            ("2E", "2000P"),
        ];
        for (one, other) in cases {
            let amount = |text: &str| nanos(&Quantity(text.to_owned()));
            assert_eq!(amount(one), amount(other), "{one} {other}");
            assert!(amount(one).is_some());
        }
        assert_eq!(nanos(&Quantity("many".into())), None);
    }

    #[test]
    fn resources_are_applied_when_the_kubelet_reports_each_wanted_one() {
        let wanted = resources(&[("cpu", "1"), ("memory", "1Gi"), ("example.com/gpu", "1")]);
        let old = resources(&[("cpu", "500m"), ("memory", "1Gi")]);
        let new = resources(&[("cpu", "1000m"), ("memory", "1024Mi")]);
        assert!(!applied(Some(&wanted), Some(&old)));
        assert!(applied(Some(&wanted), Some(&new)));
        assert!(!applied(Some(&wanted), None));
        assert!(applied(None, None));
    }
}
