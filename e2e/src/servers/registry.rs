//! A container registry, from which the node with a real kubelet pulls images. A test can hold an image back.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The host in the names of the registry's images. The node's containerd maps it to the registry's address.
const HOST: &str = "registry.test";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The registry. It stops when dropped.
pub struct Registry {
    port: u16,
    contents: Arc<watch::Sender<Contents>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Contents {
    /// Manifests, configurations and layers, by digest.
    blobs: HashMap<String, Bytes>,
    /// Digests of manifests, by NAME:TAG.
    tags: HashMap<String, String>,
    held: HashSet<String>,
    requested: HashSet<String>,
}

/// An image with one layer.
#[derive(Clone)]
pub struct Image {
    /// The tar archive of its files.
    pub layer: Bytes,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables, as NAME=VALUE.
    pub environment: Vec<String>,
}

/// Holds back the pulls of an image until this value is dropped.
pub struct Held {
    contents: Arc<watch::Sender<Contents>>,
    image: String,
}

impl Registry {
    /// Starts an empty registry on a free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let contents = Arc::new(watch::Sender::new(Contents::default()));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&contents));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the registry ended: {error}");
            }
        });
        Ok(Registry { port, contents, task })
    }

    /// The registry's URL on this machine.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds an image. `tag` is its `NAME:TAG`. Returns the image's full name and its digest.
    pub fn publish(&self, tag: &str, image: &Image) -> (String, String) {
        let mut added = Vec::new();
        let mut add = |bytes: Bytes| {
            let (digest, size) = (digest_of(&bytes), bytes.len());
            added.push((digest.clone(), bytes));
            (digest, size)
        };
        let (layer, layer_size) = add(image.layer.clone());
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            // As in the operator's image.
            "config": {"User": "65532:65532", "Entrypoint": image.command, "Env": image.environment},
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        });
        let (config, config_size) = add(config.to_string().into());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": config, "size": config_size},
            "layers": [{"mediaType": LAYER, "digest": layer, "size": layer_size}],
        });
        let (manifest, _) = add(manifest.to_string().into());
        self.contents.send_modify(|contents| {
            contents.blobs.extend(added);
            contents.tags.insert(tag.to_owned(), manifest.clone());
        });
        (format!("{HOST}/{tag}"), manifest)
    }

    /// Holds back pulls of an image, given by its full name, from now on.
    pub fn hold(&self, image: &str) -> Held {
        let image = tag_of(image).to_owned();
        self.contents.send_modify(|contents| {
            contents.held.insert(image.clone());
        });
        Held { contents: Arc::clone(&self.contents), image }
    }

    /// Waits until an image, given by its full name, has been requested.
    pub async fn until_requested(&self, image: &str) {
        let mut contents = self.contents.subscribe();
        // This cannot fail, because `self` holds the sender.
        let _ = contents.wait_for(|contents| contents.requested.contains(tag_of(image))).await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.contents.send_modify(|contents| {
            contents.held.remove(&self.image);
        });
    }
}

/// An image's name without the host.
fn tag_of(image: &str) -> &str {
    image.strip_prefix(HOST).map_or(image, |tag| &tag[1..])
}

fn digest_of(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let hex = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", hex.collect::<String>())
}

/// Answers GET and HEAD for /v2/NAME/manifests/TAG-OR-DIGEST and /v2/NAME/blobs/DIGEST.
async fn answer(State(contents): State<Arc<watch::Sender<Contents>>>, uri: Uri) -> Response {
    let Some(path) = uri.path().strip_prefix("/v2/") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut parts = path.rsplitn(3, '/');
    let (Some(reference), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next())
    else {
        return StatusCode::OK.into_response();
    };
    let tag = format!("{name}:{reference}");
    contents.send_modify(|contents| {
        contents.requested.insert(tag.clone());
    });
    let mut receiver = contents.subscribe();
    let Ok(contents) = receiver.wait_for(|contents| !contents.held.contains(&tag)).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let digest = contents.tags.get(&tag).map_or(reference, String::as_str);
    let Some(bytes) = contents.blobs.get(digest).cloned() else {
        let error =
            json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
        return (StatusCode::NOT_FOUND, error.to_string()).into_response();
    };
    let type_ = match kind {
        "manifests" => MANIFEST,
        _ => "application/octet-stream",
    };
    let headers =
        [("content-type", type_.to_owned()), ("docker-content-digest", digest.to_owned())];
    (headers, bytes).into_response()
}
