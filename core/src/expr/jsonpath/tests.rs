//! JSONPath templates: their results, which are compared with client-go's, their errors and limits.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn document() -> Value {
    serde_json::from_str(include_str!("testdata/document.json")).expect("a document")
}

/// The kind and the text of a path's selection.
fn select(path: &str, document: &Value) -> Result<(&'static str, String), PathError> {
    let path = JsonPath::parse(path)?;
    let selection = path.select(document)?;
    let kind = match &selection {
        Selection::One(_) => "one",
        Selection::Many { filtered: true, .. } => "filtered",
        Selection::Many { .. } => "many",
        Selection::Text(_) => "text",
    };
    Ok((kind, as_text(&selection)))
}

fn as_text(selection: &Selection) -> String {
    match selection {
        Selection::One(value) => text_of(value),
        Selection::Many { values, .. } => {
            values.iter().map(|value| text_of(value)).collect::<Vec<_>>().join(" ")
        }
        Selection::Text(text) => text.clone(),
    }
}

/// Templates that are errors here, because their result in client-go is accidental.
const STRICTER: [&str; 3] = ["{$.list[]}", "{range $.players[*]}{.name}", "{$.null[0]}"];
/// Templates that are errors only in client-go, because it evaluates the body of a range that has no items.
const LENIENT: [&str; 1] = ["{range $.empty[*]}{.x}{end}"];

#[test]
fn templates_give_the_same_results_as_in_client_go() {
    let document = document();
    for row in include_str!("testdata/client_go.jsonl").lines() {
        let row: Value = serde_json::from_str(row).expect("a row");
        let path = row["path"].as_str().expect("a path");
        let selected = select(path, &document);
        if STRICTER.contains(&path) {
            assert!(selected.is_err(), "{path}: {selected:?}");
        } else if LENIENT.contains(&path) {
            assert_eq!(selected, Ok(("text", String::new())), "{path}");
        } else if let Some(text) = row["text"].as_str() {
            let (_, selected) = selected.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(selected, text, "{path}");
        } else {
            assert!(selected.is_err(), "{path}: {selected:?} instead of {}", row["error"]);
        }
    }
}

#[test]
fn a_missing_key_is_an_error_that_names_the_path() {
    let message = |path, document| select(path, &document).expect_err(path).to_string();
    assert_eq!(
        message("{$.player.age}", json!({"player": {}})),
        "jsonPath {$.player.age}: key age is not found in an empty object"
    );
    assert_eq!(
        message("{$.online}", json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7})),
        "jsonPath {$.online}: key online is not found; the keys are a, b, c, d, e and 2 more"
    );
    assert_eq!(
        message("{$.player.age}", json!({"player": 7})),
        "jsonPath {$.player.age}: key age is not found in a number"
    );
    assert_eq!(
        message("{$.items[-9]}", json!({"items": [1, 2, 3]})),
        "jsonPath {$.items[-9]}: index -9 is outside a list of 3"
    );
}

#[test]
fn invalid_templates_are_errors_with_a_fix() {
    for (path, fix) in [
        ("$.age", "write {$.age}"),
        ("age", "write {age}"),
        ("{age}", "write {$.age}"),
        ("{$.age", "write } at the end"),
        ("{$.}", "write {$.KEY}"),
        ("{$.list[x]}", "write a number"),
        ("{$.list[0}", "write ]"),
        ("{$.list[::0]}", "step"),
        ("{$.list[?(@.a='b')]}", "write =="),
        ("{$.list[?(@.a==b)]}", "write {$.b}"),
        ("{$.list[?(@.a", "write [?(@.KEY"),
        ("{range $.a}{.b}", "write {end}"),
        ("{end}", "remove it"),
        ("{'text}", "write ' after"),
        ("{$....a}", "write .."),
    ] {
        let message = JsonPath::parse(path).expect_err(path).to_string();
        assert!(message.contains(fix), "{path}: {message}");
    }
}

#[test]
fn the_path_decides_whether_one_or_many_are_selected() {
    let document = json!({"a": [{"b": 1, "c": 1}], "d": [[{"c": 1}]]});
    for (path, kind, text) in [
        ("{$.a[0].b}", "one", "1"),
        ("{$.a[*].b}", "many", "1"),
        ("{$.a[0:1].b}", "many", "1"),
        ("{$..b}", "many", "1"),
        ("{$.a[?(@.c==1)].b}", "filtered", "1"),
        ("{$.a[?(@.c==2)].b}", "filtered", ""),
        ("{$.d[*][?(@.c==1)].c}", "many", "1"),
        ("b is {$.a[0].b}", "text", "b is 1"),
    ] {
        assert_eq!(select(path, &document), Ok((kind, text.to_owned())), "{path}");
    }
    assert!(JsonPath::parse("{$}").expect("a path").is_whole());
}

#[test]
fn numbers_become_text_as_users_expect() {
    for (number, text) in
        [("45", "45"), ("45.0", "45"), ("1.5", "1.5"), ("12345678", "12345678"), ("-0.0", "-0")]
    {
        let value: Value = serde_json::from_str(number).expect("a number");
        assert_eq!(text_of(&value), text);
    }
}

#[test]
fn a_path_may_visit_only_a_limited_number_of_values() {
    let mut deep = json!([1]);
    for _ in 0..60 {
        deep = json!([deep, 1]);
    }
    let document = json!({"a": vec![deep; 20]});
    for path in [
        "{..*..*..*}",
        "{$.a..*..*..*..*}",
        "{range ..*}{range ..*}{range ..*}{$..}{end}{end}{end}",
    ] {
        let error = select(path, &document).expect_err(path).to_string();
        assert!(error.contains("too much") || error.contains("too long"), "{error}");
    }
    let union = "['a','a','a','a','a','a','a','a','a','a']";
    let wide = format!("{{${}}}", union.repeat(8));
    let nested = (0..9).fold(json!(1), |inner, _| json!({"a": inner}));
    assert!(select(&wide, &nested).is_err());
}

#[test]
fn deep_nesting_is_refused() {
    let path = format!("{{$.a{}}}", "[?(@.a".repeat(200));
    assert!(JsonPath::parse(&path).is_err());
    let path = "{range $.a}".repeat(300);
    assert!(JsonPath::parse(&path).is_err());
    assert!(JsonPath::parse(&"{".repeat(5000)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_template_panics(path in r"\{(range |end)?[$@]?([.\[\]?()*:,'a-c0-3= \\-]|\.\.|\[\?\(@\.a==|\{|\}){0,14}\}?") {
        let document = json!({"a": [{"a": 1, "b": "x"}, [1, 2, 3]], "b": {"c": null}});
        let _ = select(&path, &document);
    }
}
