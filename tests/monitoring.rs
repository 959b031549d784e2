//! Alerts and dashboards use only documented series, and each alert names its runbook. Tests with Prometheus itself
//! check that alerts fire and panels have data: e2e/alerts and e2e/tests/metrics.rs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the series in the tables of docs/metrics.md.
fn documented() -> BTreeSet<String> {
    let page = read("docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

fn dashboards() -> Vec<PathBuf> {
    let folder = repository().join("charts/gamekeeper/files/dashboards");
    let entries = fs::read_dir(folder).expect("the dashboards");
    entries.map(|it| it.expect("an entry").path()).collect()
}

#[test]
fn alerts_and_dashboards_use_documented_series() {
    let documented = documented();
    let mut files: Vec<PathBuf> = dashboards();
    files.push("charts/gamekeeper/files/alerts.yaml".into());
    let series = r"\b(?:gamekeeper|bkbcs|workqueue|rest_client|process)_[a-z_]+";
    let series = Regex::new(series).expect("a regular expression");
    for file in files {
        for name in series.find_iter(&read(&file)) {
            let name = name.as_str();
            let histogram = ["_bucket", "_count", "_sum"]
                .into_iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            let is_documented = |name| documented.contains(name);
            assert!(
                is_documented(name) || histogram.is_some_and(is_documented),
                "{} uses {name}, which is not documented",
                file.display()
            );
        }
    }
}

#[test]
fn each_alert_has_a_severity_and_a_runbook() {
    let alerts: Value = serde_yaml_ng::from_str(&read("charts/gamekeeper/files/alerts.yaml"))
        .expect("alerts are YAML");
    let operations = read("docs/operations.md");
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules");
    assert!(rules.len() >= 5);
    for rule in rules {
        let name = rule["alert"].as_str().expect("a name");
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("warning" | "critical")), "{name}");
        let annotation = |key: &str| {
            let text = rule["annotations"][key].as_str();
            text.unwrap_or_else(|| panic!("{name} has no {key}"))
        };
        assert!(!annotation("summary").is_empty() && !annotation("description").is_empty());
        let section = annotation("runbook").strip_prefix("docs/operations.md, \"");
        let section = section.and_then(|it| it.strip_suffix('"'));
        let section = section.unwrap_or_else(|| panic!("{name}: {}", annotation("runbook")));
        let text = format!("\n## {section}\n*{name}.*");
        assert!(operations.contains(&text), "{name}: no {text:?}");
    }
}

#[test]
fn panels_have_titles_descriptions_and_the_selected_data_source() {
    for file in dashboards() {
        let board: Value = serde_json::from_str(&read(&file)).expect("a dashboard is JSON");
        for panel in board["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(!title.is_empty(), "{}", file.display());
            if panel["type"] == "row" {
                continue;
            }
            assert!(panel["description"].is_string(), "{title}");
            for target in panel["targets"].as_array().expect("targets") {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            }
        }
    }
}

/// By default, `kubectl logs` with a label selector prints only ten lines per pod, and only for pods in the
/// current namespace.
#[test]
fn log_commands_in_runbooks_set_tail_and_namespace() {
    let runbooks = read("docs/operations.md");
    let logs: Vec<&str> = runbooks
        .lines()
        .filter(|line| line.contains("kubectl") && line.contains(" logs -l "))
        .collect();
    assert!(logs.len() > 4, "{logs:#?}");
    for line in logs {
        assert!(line.contains("--tail="), "{line}");
        let is_operator = line.contains("app.kubernetes.io/name=gamekeeper");
        assert!(!is_operator || line.contains("-n gamekeeper-system"), "{line}");
    }
}
