//! Conditions: their results, errors and limits.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::expr::jsonpath::JsonPath;
use crate::expr::on_deep_stack;

/// Runs work on a deep stack, which the parser needs.
fn deep<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    on_deep_stack(work).expect("no panic")
}

fn evaluate(source: &str, path: &str, response: &Value) -> Result<bool, String> {
    let path = JsonPath::parse(path).map_err(|error| error.to_string())?;
    let selection = path.select(response).map_err(|error| error.to_string())?;
    let condition = Condition::compile(source).map_err(|error| error.to_string())?;
    condition.holds(&Subject::selected(&selection)).map_err(|error| error.to_string())
}

fn response() -> Value {
    json!({
        "age": 45, "rate": 0.25, "name": "bryan", "yes": true, "none": null, "big": 12_345_678,
        "text": "45", "empty": [], "whole": 45.0,
        "players": [
            {"name": "ann", "state": "playing", "score": 10},
            {"name": "bob", "state": "idle", "score": 30, "admin": true},
        ],
    })
}

#[test]
fn conditions_have_the_expected_results() {
    // Path, condition, whether it holds.
    let rows = [
        ("{$.age}", "asInt(result) < 30", false),
        ("{$.age}", "asInt(result) > 30", true),
        ("{$.age}", "asInt(result) > 30.5", true),
        ("{$.age}", "result == \"45\"", true),
        ("{$.age}", "value == 45", true),
        ("{$.age}", "value == 45.0 && value < 45.5", true),
        ("{$.whole}", "result == '45' && asInt(value) == 45", true),
        ("{$.rate}", "asFloat(result) == 0.25", true),
        ("{$.rate}", "value * 4 == 1", true),
        ("{$.rate}", "double(result) <= 1 && asInt(value) == 0", true),
        ("{$.big}", "asInt(result) == 12345678", true),
        ("{$.name}", "result == 'bryan'", true),
        ("{$.name}", "result != 'ann' && result in ['ann', 'bryan']", true),
        ("{$.name}", "result.startsWith('br') && result.endsWith(\"an\")", true),
        ("{$.name}", "result.contains('rya') && len(result) == 5", true),
        ("{$.name}", "result.matches('^b.*n$') && matches(result, 'y')", true),
        ("{$.name}", "result + '!' == 'bryan!'", true),
        ("{$.name}", "size(result) > 5 ? false : true", true),
        ("{$.yes}", "result == 'true' && value == true && value", true),
        ("{$.yes}", "result == true && true == result && result", true),
        ("{$.yes}", "result != true || !result || (result ? false : true)", false),
        ("{$.players[?(@.name=='bob')].admin}", "result == true && result", true),
        ("{$.players[?(@.name=='bob')].admin}", "result == false", false),
        ("{$.none}", "result == true", false),
        ("{$.none}", "value == null && result == null", true),
        ("{$.none}", "default(value, 3) == 3", true),
        ("{$.text}", "asInt(value) - 5 == 40", true),
        ("{$.empty}", "len(result) == 0 && result == []", true),
        ("{$}", "value.age + 5 == 50 && value['age'] % 2 == 1", true),
        ("{$}", "has(value.age) && !has(value.missing)", true),
        ("{$}", "default(value.missing, 7) == 7", true),
        ("{$}", "default(value.players[9].name, 'nobody') == 'nobody'", true),
        ("{$}", "'age' in value && !('missing' in value)", true),
        ("{$.players}", "len(result) == 2 && result[1].admin", true),
        ("{$.players}", "result.all(p, p.score >= 10)", true),
        ("{$.players}", "result.exists(p, p.state == 'playing')", true),
        ("{$.players}", "result.exists_one(p, p.state == 'playing')", true),
        ("{$.players}", "result.filter(p, p.score > 10).map(p, p.name) == ['bob']", true),
        ("{$.players}", "result.map(p, p.score > 10, p.score)[0] == 30", true),
        ("{$.players}", "result.all(p, result.exists(q, q.score >= p.score))", true),
        ("{$.players[0]}", "value.all(key, key in ['name', 'state', 'score'])", true),
        ("{$.players[*].name}", "result == ['ann', 'bob']", true),
        ("{$.players[*].score}", "result.all(score, score < 30)", false),
        ("{$.players[?(@.state=='playing')].name}", "result == 'ann' && value == ['ann']", true),
        ("{$.players[?(@.state=='gone')].name}", "len(value) == 0", true),
        ("{$.players[?(@.state=='gone')].name}", "result == []", true),
        ("{$.players[?(@.score>1)].name}", "result == ['ann', 'bob']", true),
        ("{$.age} of {$.name}", "result == '45 of bryan'", true),
        ("{$.age}", "1 + 2 * 3 - 4 / 2 == 5 && -(-1) == 1 && 7 / 2 == 3", true),
        ("{$.age}", "1 < 2 || value.missing", true),
        ("{$.age}", "value.missing || 1 < 2", true),
        ("{$.age}", "!(false && value.missing)", true),
        ("{$.age}", "9007199254740993 > 9007199254740992.0", true),
        ("{$.age}", "isNaN(asFloat('NaN')) && isInf(asFloat('inf')) && !isNaN(value)", true),
    ];
    deep(move || {
        for (path, condition, holds) in rows {
            assert_eq!(evaluate(condition, path, &response()), Ok(holds), "{path} {condition}");
        }
    });
}

#[test]
fn every_comparison_with_nan_is_false() {
    deep(|| {
        for operator in ["==", "!=", "<", "<=", ">", ">="] {
            for condition in [
                format!("asFloat('NaN') {operator} 1"),
                format!("1.5 {operator} asFloat('NaN')"),
                format!("asFloat('NaN') {operator} asFloat('NaN')"),
            ] {
                assert_eq!(evaluate(&condition, "{$}", &response()), Ok(false), "{condition}");
            }
        }
    });
}

#[test]
fn evaluation_errors_contain_the_condition_and_the_problem() {
    // Path, condition, part of the message.
    let rows = [
        ("{$.age}", "result < 30", "write asInt(result)"),
        ("{$.age}", "result != 0", "write asInt(result)"),
        ("{$.age}", "result in [44, 45]", "write asInt(...)"),
        ("{$.age}", "!(result in [44, 45])", "write asInt(...)"),
        ("{$.name}", "result == true", "in quotes"),
        ("{$.age}", "result == true", "a number is compared with true or false"),
        ("{$.age}", "!result", "45 is not true or false"),
        ("{$.players}", "result == 'ann'", "pick an element"),
        ("{$.name}", "asInt(result) < 30", "asInt(\"bryan\") is not a whole number"),
        ("{$.rate}", "asInt(result) < 30", "or write asFloat"),
        ("{$.players}", "asInt(result) < 30", "pick an element"),
        ("{$.none}", "asInt(result) < 30", "asInt(null) is not a whole number"),
        ("{$.age}", "result + 1 == 46", "write asInt(...)"),
        ("{$.age}", "asInt(result)", "its result is 45, not true or false"),
        ("{$.name}", "result", "its result is \"bryan\", not true or false"),
        ("{$.age}", "asInt(result) && true", "45 is not true or false"),
        ("{$}", "value.missing == 1", "there is no field missing"),
        ("{$}", "value.age.deep == 1", "cannot read field deep of a number"),
        ("{$}", "value.players[2].name == ''", "there is no element 2 in a list of 2"),
        ("{$}", "value.players[-1].name == ''", "there is no element -1"),
        ("{$}", "value.age in 'text'", "write TEXT.contains(PART)"),
        ("{$}", "value.age.all(x, x > 1)", "a loop needs a list, but got a number"),
        ("{$}", "1 / 0 == 1", "divided by 0"),
        ("{$}", "9223372036854775807 + 1 > 0", "too large"),
        ("{$}", "asFloat('NaN') > 1 || asInt(asFloat('NaN')) > 1", "is not a whole number"),
        ("{$.name}", "result.matches('(')", "not a valid regular expression"),
        ("{$.name}", "result.matches('(a{1000}){1000}')", "not a valid regular expression"),
        ("{$.age}", "value.contains('4')", "got a number"),
        ("{$.age}", "value.missing || false", "cannot read field missing of a number"),
        ("{$.players}", "result.all(p, p.admin)", "there is no field admin"),
    ];
    deep(move || {
        for (path, condition, why) in rows {
            let message = evaluate(condition, path, &response()).expect_err(condition);
            assert!(message.contains(why), "{condition}: {message}");
            assert!(message.starts_with(condition), "{message}");
        }
    });
}

#[test]
fn compile_errors_name_the_problem_or_its_fix() {
    let rows = [
        ("nosuch(result) || true", "function nosuch is not known: use one of asInt"),
        ("nosuch || true", "nosuch is not known: write result or value"),
        ("result.all(x, y > 1)", "y is not known"),
        ("x > 1 && [1].all(x, x > 0)", "x is not known"),
        ("result == nil", "write null"),
        ("result matches '^ok'", "write TEXT.matches"),
        ("result contains 'ok'", "write TEXT.contains"),
        ("asInt(result) > 1 and asInt(result) < 5", "write &&"),
        ("all(result, {# < 3})", "write LIST.all(x, x < 3)"),
        ("asInt(result) in 1..5", "write x >= A"),
        ("value?.age > 1", "write default("),
        ("result = 'ok'", "write == instead of ="),
        ("asInt(result < 30", "it is not CEL at character"),
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("asInt() < 30", "asInt takes 1 argument, not 0"),
        ("asInt(result, 10) < 30", "asInt takes 1 argument, not 2"),
        ("has(value)", "write has(value.FIELD)"),
        ("all(result, true)", "is written LIST.all(x"),
        ("result.all(1, true)", "the first argument of all must be a name"),
        ("result.all(x, x > 1, x)", "is written LIST.all(x"),
        ("{'a': 1} == value", "object literals are not supported"),
        ("b'x' == value", "bytes are not supported"),
        ("duration('1s') > duration('2s')", "is not supported"),
        ("value.?age == 1", "it is not CEL"),
        ("args.PodIP == ''", "args cannot be used"),
        (
            "result.all(a, result.all(b, result.all(c, true)))",
            "loops are nested more than 2 levels deep, at all",
        ),
    ];
    deep(move || {
        for (source, why) in rows {
            let message = Condition::compile(source).expect_err(source).to_string();
            assert!(message.contains(why), "{source}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    });
}

#[test]
fn deep_nesting_is_reported_even_if_quotes_contain_brackets() {
    let quoted = format!("{}'{}' == {}", "(".repeat(50), ")".repeat(50), "(".repeat(50));
    deep(move || {
        for source in ["(".repeat(100), "[".repeat(1000), quoted] {
            let message = Condition::compile(&source).expect_err(&source).to_string();
            assert!(message.contains("nested too deeply: simplify it"), "{message}");
        }
    });
}

#[test]
fn sources_beyond_a_limit_are_refused() {
    deep(|| {
        for source in [
            format!("result == '{}'", "x".repeat(1024)),
            "[".repeat(1000),
            "(".repeat(100) + "1" + &")".repeat(100),
            format!("{}1 > 0", "1+".repeat(200)),
            format!("{}1", "true?1:".repeat(140)),
            format!("{}true", "!(".repeat(20)),
            format!("value{}", ".a".repeat(500)),
            format!("{}true{}", "[".repeat(24), "]".repeat(24)) + &"[0]".repeat(100),
        ] {
            assert!(Condition::compile(&source).is_err(), "{}", &source[..20]);
        }
        assert!(Condition::compile(&format!("{}true", "true&&".repeat(40))).is_ok());
    });
}

#[test]
fn the_steps_of_an_evaluation_are_limited() {
    let many = Value::from((0..100_000).collect::<Vec<_>>());
    let long = json!("x".repeat(1 << 20));
    let wide = json!("y".repeat(50_000));
    deep(move || {
        let rows = [
            ("value.all(x, value.all(y, x + y >= 0))", &many),
            ("value.map(x, value.map(y, [x, y])).size() > 0", &many),
            ("value.map(x, [value, value, value]).map(y, y.map(z, z)).size() > 0", &many),
            ("value.exists(x, value == [x])  || value.all(x, value == value)", &many),
            (
                "[1,2,3,4,5,6,7,8,9].all(x, [1,2,3,4,5,6,7,8,9].all(y, (value+value+value+value).contains('x')))",
                &long,
            ),
            (
                "[1,2,3].map(x, value + value).map(x, [1,2,3,4,5,6].map(y, x + x + x + x)).size() > 0",
                &long,
            ),
            (
                "[1,2,3,4,5,6,7,8,9].map(x, [1,2,3,4,5,6,7,8,9].map(y, value.matches('(x+x+)+y'))).size() < 0",
                &long,
            ),
            ("[1,2,3].all(x, value.matches('y{1,900}'))", &wide),
        ];
        for (condition, response) in rows {
            let started = std::time::Instant::now();
            let message = evaluate(condition, "{$}", response).expect_err(condition);
            assert!(message.contains("too many steps"), "{condition}: {message}");
            // Two seconds leave room for a debug build: a release build stays far below 200 ms.
            assert!(started.elapsed().as_millis() < 2_000, "{condition}: {:?}", started.elapsed());
        }
    });
}

#[test]
fn a_spent_budget_ends_the_whole_evaluation() {
    let many = Value::from((0..100_000).collect::<Vec<_>>());
    deep(move || {
        for condition in [
            "value.all(x, value.all(y, true)) || true",
            "!(value.all(x, value.all(y, true)) && false)",
            "[1].exists(x, value.filter(y, true) == value.filter(z, z + 1 > 0) || true)",
            "default(value.all(x, value.all(y, true)), true)",
        ] {
            let message = evaluate(condition, "{$}", &many).expect_err(condition);
            assert!(message.contains("too many steps"), "{condition}: {message}");
        }
    });
}

#[test]
fn expressions_that_depend_on_the_type_of_result_are_refused() {
    let rows = [
        ("{$.age}", "result == 1 || true", false),
        ("{$.age}", "true || 1.5 < result", false),
        ("{$.age}", "[1].exists(x, result > 3 || true)", false),
        ("{$.age}", "asInt(result) == 45 || value == 1", true),
        ("{$.players}", "len(result) == 2", true),
        ("{$.players[?(@.score>1)].name}", "len(result) == 2 || true", false),
        ("{$.players[?(@.score>1)].name}", "result[0] == 'ann' || true", false),
        ("{$.players[?(@.score>1)].name}", "result.all(x, x != '') || true", false),
        ("{$.players[?(@.score>1)].name}", "'ann' in result || true", false),
        ("{$.players[?(@.score>1)].name}", "len(value) == 2 && value[0] == 'ann'", true),
    ];
    deep(move || {
        for (path, condition, accepted) in rows {
            let outcome = evaluate(condition, path, &response());
            assert_eq!(outcome.is_ok(), accepted, "{path} {condition}: {outcome:?}");
        }
    });
}

#[test]
fn a_measured_value_is_shown_as_text() {
    let response = response();
    for (path, shown) in [
        ("{$.age}", "45"),
        ("{$.name}", "bryan"),
        ("{$.none}", "null"),
        ("{$.players[*].name}", "[\"ann\",\"bob\"]"),
        ("{$.players[?(@.score>10)].name}", "bob"),
        ("{$.players[0]}", "{\"name\":\"ann\",\"score\":10,\"state\":\"playing\"}"),
    ] {
        let path = JsonPath::parse(path).expect(path);
        let selection = path.select(&response).expect("a selection");
        assert_eq!(Subject::selected(&selection).shown(), shown);
    }
    let long = json!(vec!["\"".repeat(5_000); 5_000]);
    assert!(Subject::whole(&long).shown().chars().count() <= 1_003);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_expression_panics(
        words in proptest::collection::vec(prop_oneof![
            Just("result"), Just("value"), Just("x"), Just("asInt("), Just("len("), Just("("), Just(")"),
            Just("["), Just("]"), Just(".all(x, "), Just(".map(x, "), Just("== "), Just("< "), Just("+ "),
            Just("&& "), Just("|| "), Just("!"), Just("-"), Just("1 "), Just("2.5 "), Just("'a' "),
            Just(".a"), Just("? "), Just(": "), Just(", "), Just("in "), Just("null "), Just("{"), Just("}"),
        ], 1..20),
    ) {
        let source = words.concat();
        deep(move || {
            let _ = evaluate(&source, "{$}", &json!({"a": [1, 2.5, "x", {"a": null}]}));
        });
    }
}
