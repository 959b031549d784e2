//! What a test reads and waits for.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use judge::object::{controller, text, uid};
use serde_json::{Value, json};

use super::Case;
use crate::wait::{LIMIT, consistently, eventually};
use crate::workload::table::Table;
use crate::workload::view::{Pod, Run, View};

impl Case {
    /// Runs kubectl and parses the table that it prints.
    pub async fn table(&self, args: &[&str]) -> Result<Table> {
        Ok(Table::parse(&self.kubectl(args).await?))
    }

    /// Reads an API path below this namespace, such as `pods`, `pods/NAME` or `hookruns`.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let operator_kinds = ["gamedeployments", "gamestatefulsets", "hookruns", "hooktemplates"];
        let resource = path.split(['/', '?']).next().unwrap_or_default();
        let api = match resource {
            _ if operator_kinds.contains(&resource) => "/apis/tkex.tencent.com/v1alpha1",
            "controllerrevisions" => "/apis/apps/v1",
            "jobs" => "/apis/batch/v1",
            "leases" => "/apis/coordination.k8s.io/v1",
            "horizontalpodautoscalers" => "/apis/autoscaling/v2",
            _ => "/api/v1",
        };
        let namespace = &self.namespace;
        let path = format!("{api}/namespaces/{namespace}/{path}");
        self.plane.get(&path).await
    }

    /// The objects of a resource, sorted by name.
    pub async fn list(&self, resource: &str) -> Result<Vec<Value>> {
        items(self.get(resource).await?)
    }

    /// The workload with its pods and HookRuns.
    pub async fn view(&self) -> Result<View> {
        self.view_of(self.name).await
    }

    /// A workload with its pods and HookRuns, all read at one resourceVersion, so that a view never combines
    /// a HookRun with its pod's state at another time.
    pub async fn view_of(&self, name: &str) -> Result<View> {
        let runs = self.get("hookruns").await?;
        let version = text(&runs, "/metadata/resourceVersion");
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        let (kind, named) = (self.kind, format!("fieldSelector=metadata.name={name}"));
        let game = items(self.get(&format!("{kind}s?{exact}&{named}")).await?)?.pop();
        let game = game.with_context(|| format!("no {kind} {name}"))?;
        let owner = uid(&game).to_owned();
        let owned = |list| -> Result<Vec<Value>> {
            let mut objects = items(list)?;
            objects.retain(|object| controller(object) == Some(owner.as_str()));
            Ok(objects)
        };
        let pods = owned(self.get(&format!("pods?{exact}")).await?)?;
        Ok(View {
            pods: pods.into_iter().map(Pod).collect(),
            runs: owned(runs)?.into_iter().map(Run).collect(),
            game,
        })
    }

    /// Waits until a condition holds for the workload, and returns the view.
    pub async fn until(&self, description: &str, holds: impl Fn(&View) -> bool) -> Result<View> {
        self.until_of(self.name, description, holds).await
    }

    /// Waits until a condition holds for another workload.
    pub async fn until_of(
        &self,
        name: &str,
        description: &str,
        holds: impl Fn(&View) -> bool,
    ) -> Result<View> {
        eventually(description, LIMIT, async || {
            let view = self.view_of(name).await?;
            view.ensure(holds(&view))?;
            Ok(view)
        })
        .await
    }

    /// Waits until the status is up to date and has these counts: DESIRED, UPDATED, UPDATED_READY, READY
    /// and TOTAL.
    pub async fn until_counts(&self, counts: [i64; 5]) -> Result<View> {
        let description = format!("counts {counts:?}");
        let holds = |view: &View| view.counts() == counts && view.is_observed();
        self.until(&description, holds).await
    }

    /// Changes a field of a workload (KIND/NAME) that concerns no pod, and waits until the operator has observed the
    /// change. An operator that was just started is ready before it leads and plans.
    pub async fn until_planned(&self, workload: &str) -> Result<()> {
        let change = json!([{"op": "add", "path": "/spec/revisionHistoryLimit", "value": 9}]);
        self.patch(workload, change).await?;
        let (kind, name) = workload.split_once('/').context("not KIND/NAME")?;
        self.eventually("the operator plans", async || {
            let found = self.get(&format!("{kind}s/{name}")).await?;
            let observed = &found["status"]["observedGeneration"];
            ensure!(*observed == found["metadata"]["generation"], "{found:#}");
            Ok(())
        })
        .await
    }

    /// Waits until all pods are updated and available, and no HookRun is left.
    pub async fn until_settled(&self, replicas: i64) -> Result<View> {
        self.until("settled", |view| view.is_settled(replicas)).await
    }

    /// Checks that a condition holds for this number of seconds.
    pub async fn consistently(
        &self,
        description: &str,
        seconds: u64,
        holds: impl Fn(&View) -> bool,
    ) -> Result<()> {
        consistently(description, Duration::from_secs(seconds), async || {
            let view = self.view().await?;
            view.ensure(holds(&view))
        })
        .await
    }

    /// Waits until a probe succeeds.
    pub async fn eventually<T>(
        &self,
        description: &str,
        probe: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        eventually(description, LIMIT, probe).await
    }
}

fn items(mut list: Value) -> Result<Vec<Value>> {
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        other => bail!("not a list: {other}"),
    }
}
