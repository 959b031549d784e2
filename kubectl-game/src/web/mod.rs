//! `kubectl game view`: a page that shows what runs, what waits, and who has to act.
//!
//! The server listens on the loopback interface only, and uses the permissions of the user who started it. What the page
//! says comes from the functions that `status` and `tree` use: the browser lays out, it decides nothing.

mod act;
mod assets;
mod browser;
pub mod cluster;
mod delta;
mod differences;
mod events;
mod fleet;
mod gate;
mod head;
mod pods;
mod rights;
mod routes;
mod runs;
mod stream;
mod visitors;
mod workload;

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use self::gate::Gate;
use self::routes::{Site, router};
use self::visitors::Visitors;
use crate::cluster::Cluster;
use crate::command::put;
use crate::error::Error;
use crate::kind::Reference;
use crate::options::{ClusterOptions, ViewOptions};

/// Serves the page until interrupted.
pub async fn view(target: &ClusterOptions, options: &ViewOptions) -> Result<(), Error> {
    let cluster = Cluster::connect(target).await?;
    let path = match options.workload.as_slice() {
        [] => "/".to_owned(),
        words => {
            let game = cluster.find(&Reference::parse(words)?).await?;
            format!("/{}/{}/{}", game.namespace, game.kind.short(), game.name)
        }
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
    let port = listener.local_addr()?.port();
    let gate = Gate::new(port)?;
    let address = format!("http://127.0.0.1:{port}{path}#token={}", gate.token());
    let only_namespace = target.namespace.is_some() && !options.all_namespaces;
    put(&format!("open {address}\nthe address works once; press Ctrl-C to end\n"))?;
    if !options.no_open {
        browser::open(&address);
    }
    let site = Site { visitors: Visitors::Own { cluster, gate }, only_namespace };
    Ok(axum::serve(listener, router(site)).await?)
}
