//! The images of a test, and workloads whose pods run them on the node with the real kubelet.

use std::collections::BTreeMap;

use anyhow::Result;
use e2e::case::Case;
use e2e::node::{self, Node};
use e2e::servers::registry::Held;
use e2e::workload::manifest::Game;
use serde_json::{Value, json};

/// The images of one test. They have a repository and contents of their own, because a node keeps every name
/// under which content was pulled.
pub struct Images {
    node: &'static Node,
    repository: String,
    /// What the server in an image answers, by the image's name.
    versions: BTreeMap<String, String>,
}

impl Images {
    /// Begins without images. Starts the node unless it is running.
    pub async fn new(case: &Case) -> Result<Self> {
        Ok(Images {
            node: node::shared(case.plane(), env!("CARGO_BIN_EXE_game-server")).await?,
            repository: format!("{}/game", case.namespace),
            versions: BTreeMap::new(),
        })
    }

    /// Publishes a version that answers 300 ms after its start, and returns the image's name.
    pub fn publish(&mut self, tag: &str, version: &str) -> String {
        self.add(tag, version, "ANSWER_AFTER_MS=300").0
    }

    /// Publishes a version that answers immediately.
    pub fn publish_quick(&mut self, tag: &str, version: &str) -> String {
        self.add(tag, version, "ANSWER_AFTER_MS=0").0
    }

    /// Publishes a version that never answers, and exits after a second.
    pub fn publish_crashing(&mut self, tag: &str) -> String {
        self.add(tag, "crash", "EXIT_AFTER_MS=1000").0
    }

    /// Publishes a version that runs and does not answer for ten minutes.
    pub fn publish_silent(&mut self, tag: &str) -> String {
        self.add(tag, "silent", "ANSWER_AFTER_MS=600000").0
    }

    /// Publishes a version, and returns the image's name with its digest.
    pub fn publish_digest(&mut self, tag: &str, version: &str) -> String {
        let (image, digest) = self.add(tag, version, "ANSWER_AFTER_MS=300");
        let (name, _) = image.rsplit_once(':').unwrap_or((&image, ""));
        let by_digest = format!("{name}@{digest}");
        self.versions.insert(by_digest.clone(), version.to_owned());
        by_digest
    }

    fn add(&mut self, tag: &str, version: &str, behavior: &str) -> (String, String) {
        let environment = [
            format!("VERSION={version}"),
            format!("REPOSITORY={}", self.repository),
            behavior.to_owned(),
        ];
        let tag = format!("{}:{tag}", self.repository);
        let (image, digest) = self.node.publish(&tag, &environment);
        self.versions.insert(image.clone(), version.to_owned());
        (image, digest)
    }

    /// The name of an image that was not published.
    pub fn unpublished(&self, tag: &str) -> String {
        format!("registry.test/{}:{tag}", self.repository)
    }

    /// Holds back pulls of an image.
    pub fn hold(&self, image: &str) -> Held {
        self.node.registry.hold(image)
    }

    /// Waits until the node has requested an image.
    pub async fn until_requested(&self, image: &str) {
        self.node.registry.until_requested(image).await;
    }

    /// What the server in each image answers.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.versions.clone()
    }
}

/// A GameDeployment of two pods on the node, updated in place one after the other.
pub fn game(image: &str) -> Game {
    let pod = "/spec/template/spec";
    let mut game = Game::in_place(2).max_unavailable(1).image(image);
    for (field, value) in pod_fields() {
        game = game.set(&format!("{pod}/{field}"), value);
    }
    game
}

/// Fields that put a pod on the node, with a probe that tells the kubelet when the server responds. The probe's timeout
/// is long, because a pod that only responds late must not become unready. Without a server, the probe fails at once.
pub fn pod_fields() -> [(&'static str, Value); 3] {
    let probe = json!({
        "httpGet": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30,
    });
    [
        ("nodeSelector", json!({"gamekeeper/kubelet": "real"})),
        ("terminationGracePeriodSeconds", json!(5)),
        ("containers/0/readinessProbe", probe),
    ]
}
