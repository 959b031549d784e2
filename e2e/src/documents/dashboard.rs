//! The queries of a Grafana dashboard, as Grafana sends them to Prometheus.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::checkout::repository;

/// A query of a panel or variable.
#[derive(Clone, Debug)]
pub struct Query {
    /// Title of the panel, or name of the variable.
    pub source: String,
    /// PromQL.
    pub expr: String,
}

/// The queries of one of the chart's dashboards, with these values for the dashboard's variables.
pub fn queries(dashboard: &str, variables: &[(&str, &str)]) -> Result<Vec<Query>> {
    let path = format!("charts/gamekeeper/files/dashboards/{dashboard}.json");
    let text = std::fs::read_to_string(repository().join(path))?;
    let board: Value = serde_json::from_str(&text)?;
    let mut queries = Vec::new();
    for panel in list(&board["panels"]) {
        for target in list(&panel["targets"]) {
            queries.push(query(&panel["title"], &target["expr"])?);
        }
    }
    for variable in list(&board["templating"]["list"]) {
        if variable["type"] == "query" {
            queries.push(query(&variable["name"], &variable["definition"])?);
        }
    }
    for query in &mut queries {
        query.expr = label_values(&query.expr).unwrap_or_else(|| query.expr.clone());
        // The range covers the whole test: on a busy machine, the last minute may contain no event.
        query.expr = query.expr.replace("$__rate_interval", "10m");
        for (name, value) in variables {
            query.expr = query.expr.replace(&format!("${name}"), value);
        }
    }
    Ok(queries)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn query(source: &Value, expr: &Value) -> Result<Query> {
    Ok(Query {
        source: source.as_str().context("a query has no title")?.to_owned(),
        expr: expr.as_str().context("a query has no expression")?.to_owned(),
    })
}

/// PromQL for `label_values(SERIES, LABEL)`, which is a function of Grafana.
fn label_values(expr: &str) -> Option<String> {
    let arguments = expr.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (series, label) = arguments.rsplit_once(", ")?;
    Some(format!("count by ({label}) ({series})"))
}
