//! A real Prometheus that scrapes operators every second and answers queries.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::case::Case;
use crate::checkout::repository;
use crate::cluster::operator::free_port;
use crate::process::command::run;

/// The server. It stops when dropped.
pub struct Prometheus {
    child: Child,
    promtool: PathBuf,
    /// Its URL.
    pub url: String,
}

/// One series in the result of a query.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its labels, including the metric's name as `__name__`.
    pub labels: Value,
    /// Its value.
    pub value: f64,
}

impl Prometheus {
    /// Starts a server that scrapes operators at these ports, configured as in docs/metrics.md.
    pub async fn scrape(case: &Case, ports: &[u16]) -> Result<Self> {
        let folder = case.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config(ports).to_string())?;
        let mut find = Command::new(repository().join("e2e/cluster/prometheus.sh"));
        let found = run(&mut find, "").await?;
        let binary = Path::new(found.trim());
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().await?));
        let log = std::fs::File::create(folder.join("log"))?;
        let data = folder.join("data");
        let child = Command::new(binary)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start Prometheus")?;
        Ok(Prometheus {
            child,
            promtool: binary.with_file_name("promtool"),
            url: format!("http://{address}"),
        })
    }

    /// Runs an instant query.
    pub async fn query(&self, query: &str) -> Result<Vec<Sample>> {
        let mut promtool = Command::new(&self.promtool);
        promtool.args(["query", "instant", "--format=json", &self.url, query]);
        let result = run(&mut promtool, "").await?;
        let result: Value = serde_json::from_str(&result)
            .with_context(|| format!("the result of {query} is not a vector: {result}"))?;
        let series = result.as_array().context("the result is not an array")?;
        series.iter().map(sample).collect()
    }

    /// The value of a query with exactly one series.
    pub async fn value(&self, query: &str) -> Result<f64> {
        let result = self.query(query).await?;
        ensure!(result.len() == 1, "{query} gives {result:?}");
        Ok(result[0].value)
    }

    /// Waits until a query has exactly one series, with this value.
    pub async fn until(&self, case: &Case, query: &str, value: f64) -> Result<()> {
        case.eventually(&format!("{query} is {value}"), async || {
            let found = self.value(query).await?;
            ensure!(found == value, "it is {found}");
            Ok(())
        })
        .await
    }

    /// Stops the server.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

fn config(ports: &[u16]) -> Value {
    let targets: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    json!({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{
            "job_name": "gamekeeper",
            "honor_labels": true,
            "static_configs": [{"targets": targets}],
            "metric_relabel_configs": [{
                "source_labels": ["__name__", "namespace"],
                "regex": "bkbcs_(?:gamestatefulset|gameworkload|hook)_.*;(.+)",
                "target_label": "exported_namespace",
            }],
        }],
    })
}

fn sample(series: &Value) -> Result<Sample> {
    let value = series["value"][1].as_str();
    Ok(Sample {
        labels: series["metric"].clone(),
        value: value.and_then(|it| it.parse().ok()).context("the value is not a number")?,
    })
}
