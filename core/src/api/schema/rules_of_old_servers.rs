//! Each rule compiles on the oldest API server that is supported, Kubernetes 1.30, which refuses a CRD otherwise. Its
//! functions are those of Kubernetes 1.29, because it must be possible to downgrade it.

use regex::Regex;
use serde_json::Value;

use super::crds;
use super::rules::escaped;

/// Functions and macros of CEL, with optional values.
const OF_CEL: [&str; 33] = [
    "all",
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "getSeconds",
    "has",
    "hasValue",
    "int",
    "map",
    "matches",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
    "value",
    "getHours",
    "getMinutes",
];

/// Functions of the libraries that Kubernetes added by 1.29: strings, lists, regular expressions, URLs, quantities, sets.
const OF_KUBERNETES: [&str; 32] = [
    "add",
    "asApproximateFloat",
    "asInteger",
    "charAt",
    "compareTo",
    "equivalent",
    "find",
    "findAll",
    "format",
    "indexOf",
    "intersects",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "isSorted",
    "isURL",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "max",
    "min",
    "quantity",
    "replace",
    "sign",
    "split",
    "sub",
    "substring",
    "sum",
    "trim",
    "upperAscii",
    "url",
];

/// What in a rule an API server of Kubernetes 1.30 does not understand.
fn not_understood(rule: &str) -> Vec<String> {
    let text = Regex::new(r"'(\\.|[^'\\])*'").expect("a pattern");
    let rule = text.replace_all(rule, "''");
    let name = Regex::new(r"(?P<dot>[.]\??\s*)?\b(?P<name>[A-Za-z_]\w*)(?P<call>\s*\()?")
        .expect("a pattern");
    let mut found = Vec::new();
    for it in name.captures_iter(&rule) {
        let name = &it["name"];
        let literal = ["true", "false", "null", "in"].contains(&name) && it.name("dot").is_none();
        if literal {
            continue;
        }
        let known = OF_CEL.contains(&name) || OF_KUBERNETES.contains(&name);
        if escaped(name) != name || (it.name("call").is_some() && !known) {
            found.push(name.to_owned());
        }
    }
    found
}

/// Calls `check` for each rule in a schema.
fn each_rule(schema: &Value, check: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("x-kubernetes-validations", Value::Array(rules)) => {
                        let texts =
                            rules.iter().flat_map(|it| [&it["rule"], &it["messageExpression"]]);
                        texts.filter_map(Value::as_str).for_each(&mut *check);
                    }
                    _ => each_rule(value, check),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_rule(item, check)),
        _ => {}
    }
}

#[test]
fn kubernetes_1_30_understands_each_rule() {
    let mut rules = 0;
    for crd in crds() {
        let crd = serde_json::to_value(crd).expect("a CRD is JSON");
        each_rule(&crd, &mut |rule| {
            rules += 1;
            assert_eq!(not_understood(rule), Vec::<String>::new(), "{rule}");
        });
    }
    assert!(rules > 100, "{rules} rules were found");
}

#[test]
fn reserved_words_and_newer_functions_are_found() {
    for (rule, found) in [
        ("self.function != 'patch'", "function"),
        ("has(self.namespace)", "namespace"),
        ("oldSelf.?in.orValue(1) == 1", "in"),
        ("self.items.all(package, package > 1)", "package"),
        // New in 1.30 (which accepts only the functions of 1.29 in a new CRD), 1.31, 1.32 and 1.34.
        ("ip(self).family() == 4", "ip"),
        ("format.dns1123Label().validate(self).hasValue()", "dns1123Label"),
        ("self.transformList(i, v, v)", "transformList"),
        ("self.distinct() == self", "distinct"),
    ] {
        assert!(not_understood(rule).contains(&found.to_owned()), "{rule}");
    }
}

#[test]
fn text_and_literals_are_not_mistaken_for_names() {
    for rule in [
        r"self.kind in ['function(', 'it\'s a namespace'] || null == self.value || true",
        "self.__function__ != 'patch' && !has(self.__namespace__)",
        "oldSelf.optMap(old, !(old.type == 'x')).orValue(false)",
    ] {
        assert_eq!(not_understood(rule), Vec::<String>::new(), "{rule}");
    }
}
