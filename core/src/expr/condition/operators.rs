//! The operators in conditions: arithmetic, comparisons and `in`.
//!
//! Text is never converted to a number implicitly: mixing the two is an error that says which conversion to write. A
//! comparison that merely returned false would silently decide the result of a hook.

use std::cmp::Ordering;

use super::compile::Operator;
use super::eval::{Budget, Fault, Result, wrong};
use super::value::{List, Text, Val, number_order};

pub(super) fn negate<'a>(value: Val<'a>) -> Result<Val<'a>> {
    match value {
        Val::Int(int) => int.checked_neg().map(Val::Int).ok_or_else(too_large),
        Val::Double(double) => Ok(Val::Double(-double)),
        other => wrong(format!("- needs a number, but got {}", other.kind())),
    }
}

fn too_large() -> Fault {
    Fault::Wrong("the result is too large for a number".into())
}

pub(super) fn binary<'a>(
    operator: Operator,
    left: &Val<'a>,
    right: &Val<'a>,
    budget: &mut Budget,
) -> Result<Val<'a>> {
    match operator {
        Operator::In => is_in(left, right, budget).map(Val::Bool),
        operator if operator.is_comparison() => {
            compare(operator, left, right, budget).map(Val::Bool)
        }
        operator => arithmetic(operator, left, right, budget),
    }
}

fn arithmetic<'a>(
    operator: Operator,
    left: &Val<'a>,
    right: &Val<'a>,
    budget: &mut Budget,
) -> Result<Val<'a>> {
    match (operator, left, right) {
        (Operator::Add, Val::Text(left), Val::Text(right)) => {
            let (left, right) = (left.as_str(), right.as_str());
            budget.spend_bytes(left.len() + right.len())?;
            Ok(Val::Text(Text::Built([left, right].concat().into())))
        }
        (Operator::Add, Val::List(left), Val::List(right)) => {
            budget.spend(left.len() + right.len())?;
            Ok(Val::List(List::Built(left.iter().chain(right.iter()).collect())))
        }
        (_, Val::Int(left), Val::Int(right)) => ints(operator, *left, *right),
        (_, Val::Int(left), Val::Double(right)) => Ok(doubles(operator, *left as f64, *right)),
        (_, Val::Double(left), Val::Int(right)) => Ok(doubles(operator, *left, *right as f64)),
        (_, Val::Double(left), Val::Double(right)) => Ok(doubles(operator, *left, *right)),
        (_, Val::Text(_), Val::Int(_) | Val::Double(_))
        | (_, Val::Int(_) | Val::Double(_), Val::Text(_)) => {
            wrong("text cannot be used in arithmetic: write asInt(...) or asFloat(...) around it")
        }
        _ => wrong(format!("arithmetic on {} and {} is not possible", left.kind(), right.kind())),
    }
}

fn ints<'a>(operator: Operator, left: i64, right: i64) -> Result<Val<'a>> {
    if right == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
        return wrong("a number is divided by 0");
    }
    let number = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        _ => left.checked_rem(right),
    };
    number.map(Val::Int).ok_or_else(too_large)
}

fn doubles<'a>(operator: Operator, left: f64, right: f64) -> Val<'a> {
    Val::Double(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        _ => left % right,
    })
}

/// Compares two values. It is an error if their types differ: otherwise `result != 0` would hold for the text "0".
/// `==` and `!=` also accept null on either side. All comparisons with NaN are false.
fn compare(
    operator: Operator,
    left: &Val<'_>,
    right: &Val<'_>,
    budget: &mut Budget,
) -> Result<bool> {
    let is_equality = matches!(operator, Operator::Equal | Operator::NotEqual);
    let order = match (left, right) {
        (Val::Int(_) | Val::Double(_), Val::Int(_) | Val::Double(_)) => {
            match number_order(left, right) {
                Some(order) => order,
                None => return Ok(false),
            }
        }
        (Val::Text(left), Val::Text(right)) => {
            budget.spend_bytes(left.as_str().len().min(right.as_str().len()))?;
            left.as_str().cmp(right.as_str())
        }
        _ if is_equality && may_be_equal(left, right) => {
            if equal(left, right, budget)? {
                Ordering::Equal
            } else {
                Ordering::Less
            }
        }
        _ => return wrong(cannot_compare(left, right)),
    };
    Ok(match operator {
        Operator::Equal => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Whether values of these types can be equal.
fn may_be_equal(left: &Val<'_>, right: &Val<'_>) -> bool {
    left.kind() == right.kind() || matches!(left, Val::Null) || matches!(right, Val::Null)
}

fn cannot_compare(left: &Val<'_>, right: &Val<'_>) -> String {
    let fix = match (left, right) {
        (Val::List(_), _) | (_, Val::List(_)) => ": pick an element, as in result[0]",
        (Val::Text(_), Val::Int(_) | Val::Double(_))
        | (Val::Int(_) | Val::Double(_), Val::Text(_)) => {
            ": write asInt(...) or asFloat(...) around the text"
        }
        (Val::Text(_), Val::Bool(_)) | (Val::Bool(_), Val::Text(_)) => {
            ": put \"true\" or \"false\" in quotes"
        }
        _ => "",
    };
    format!("{} is compared with {}{fix}", left.kind(), right.kind())
}

/// Deep equality. Values of different types are not equal.
fn equal(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget) -> Result<bool> {
    budget.spend(1)?;
    Ok(match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        (Val::Text(left), Val::Text(right)) => {
            budget.spend_bytes(left.as_str().len())?;
            left.as_str() == right.as_str()
        }
        (Val::List(left), Val::List(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(&left, &right, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Val::Object(left), Val::Object(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (key, value) in *left {
                let other = right.get(key).map(Val::from_json);
                if !other
                    .map_or(Ok(false), |other| equal(&Val::from_json(value), &other, budget))?
                {
                    return Ok(false);
                }
            }
            true
        }
        _ => number_order(left, right).is_some_and(Ordering::is_eq),
    })
}

/// `in`: whether the item is an element of a list, or a key of an object.
fn is_in(item: &Val<'_>, container: &Val<'_>, budget: &mut Budget) -> Result<bool> {
    match (item, container) {
        (_, Val::List(list)) => {
            let mut comparable = list.len() == 0;
            for other in list.iter() {
                if equal(item, &other, budget)? {
                    return Ok(true);
                }
                comparable |= may_be_equal(item, &other);
            }
            if comparable {
                return Ok(false);
            }
            let first = list.get(0).unwrap_or(Val::Null);
            wrong(cannot_compare(item, &first))
        }
        (Val::Text(key), Val::Object(fields)) => Ok(fields.contains_key(key.as_str())),
        (_, Val::Text(_)) => wrong("in needs a list: write TEXT.contains(PART) to search in text"),
        _ => wrong(format!("in needs a list, but got {}", container.kind())),
    }
}
