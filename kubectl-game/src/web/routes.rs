//! The addresses that the server answers.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Json, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Deserialize;
use serde_json::json;

use super::act::{Action, act};
use super::assets::{PAGE, asset};
use super::differences::differences;
use super::fleet::{self, WatchedFleet};
use super::gate::Refused;
use super::rights::Rights;
use super::stream::{failure, follow};
use super::visitors::Visitors;
use super::workload::{self, WatchedWorkload};
use crate::cluster::Cluster;
use crate::error::{Error, refuse};
use crate::game::Game;
use crate::kind::{Reference, parse_kind};
use crate::page::sanitize;
use crate::watch::Watch;

/// What the server serves.
pub struct Site {
    pub visitors: Visitors,
    /// Whether only the namespace of the visitor's cluster is shown.
    pub only_namespace: bool,
}

type Shared = State<Arc<Site>>;

/// The longest body of a request.
const MAX_BODY: usize = 16 * 1024;

/// Nothing is loaded from elsewhere, no text becomes a script, and no other site may embed the page.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// All routes. The page and its files hold nothing secret and are served without a session, which the page's script
/// needs to begin one; everything else needs the session's cookie.
pub fn router(site: Site) -> Router {
    let site = Arc::new(site);
    let private = Router::new()
        .route("/api/session", get(async || StatusCode::NO_CONTENT))
        .route("/api/fleet", get(fleet_stream))
        .route("/api/workload/{namespace}/{kind}/{name}", get(workload_stream).post(change))
        .route("/api/workload/{namespace}/{kind}/{name}/differences", get(compare))
        .layer(from_fn_with_state(site.clone(), require_session));
    Router::new()
        .route("/", get(page))
        .route("/{kind}/{name}", get(page))
        .route("/{namespace}/{kind}/{name}", get(page))
        .route("/app/{file}", get(file))
        .route("/session", post(session))
        .merge(private)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(site.clone(), guard))
        .with_state(site)
}

/// Checks where each request comes from, and sets the headers of each response.
async fn guard(State(site): Shared, request: Request, next: Next) -> Response {
    let mut response = match site.visitors.check_origin(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The cluster as the visitor sees it: without a session, there is none.
async fn require_session(State(site): Shared, mut request: Request, next: Next) -> Response {
    match site.visitors.cluster(request.headers()) {
        Ok(cluster) => {
            request.extensions_mut().insert(cluster);
            next.run(request).await
        }
        Err(Refused(why)) => {
            let body = json!({"error": why, "bringToken": site.visitors.bring_tokens()});
            (StatusCode::FORBIDDEN, Json(body)).into_response()
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::FORBIDDEN, Json(json!({"error": self.0}))).into_response()
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let code = match &self {
            Error::Usage(_) => StatusCode::BAD_REQUEST,
            Error::Refused(_) => StatusCode::CONFLICT,
            Error::NotFound(_) => StatusCode::NOT_FOUND,
            Error::Server(status) => {
                StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            _ => StatusCode::BAD_GATEWAY,
        };
        (code, Json(json!({"error": sanitize(&self.to_string())}))).into_response()
    }
}

async fn page() -> Html<&'static str> {
    Html(PAGE)
}

async fn file(Path(name): Path<String>) -> Response {
    match asset(&name) {
        Some(asset) => ([(header::CONTENT_TYPE, asset.content_type)], asset.text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[derive(Deserialize)]
struct Entry {
    token: String,
}

async fn session(
    State(site): Shared,
    entry: Result<Json<Entry>, JsonRejection>,
) -> Result<Response, Refused> {
    let Ok(Json(entry)) = entry else {
        return Err(Refused("the request has no token"));
    };
    let cookie = site.visitors.enter(&entry.token).await?;
    Ok(([(header::SET_COOKIE, cookie)], StatusCode::NO_CONTENT).into_response())
}

/// Which part of the fleet is shown.
#[derive(Deserialize)]
struct Scope {
    namespace: Option<String>,
}

async fn fleet_stream(
    State(site): Shared,
    Extension(cluster): Extension<Cluster>,
    Query(scope): Query<Scope>,
) -> Response {
    let only_namespace = site.only_namespace || scope.namespace.is_some();
    let cluster = match scope.namespace {
        Some(namespace) => cluster.in_namespace(namespace),
        None => cluster,
    };
    match WatchedFleet::find(&cluster, only_namespace).await {
        Ok(fleet) => follow(Watch::start(fleet), fleet::show).into_response(),
        Err(error) => failure(&error).into_response(),
    }
}

/// The place of a workload in an address.
type Place = Path<(String, String, String)>;

fn place(
    cluster: &Cluster,
    place: (String, String, String),
) -> Result<(Cluster, Reference), Error> {
    let (namespace, kind, name) = place;
    let reference = Reference { kind: Some(parse_kind(&kind)?), name };
    Ok((cluster.in_namespace(namespace), reference))
}

async fn workload_stream(
    State(site): Shared,
    Extension(cluster): Extension<Cluster>,
    Path(path): Place,
) -> Response {
    let found = async {
        let (cluster, reference) = place(&cluster, path)?;
        let game: Game = cluster.find(&reference).await?;
        let rights = match site.visitors.may_act() {
            true => Rights::ask(&cluster, &game).await,
            false => Rights::default(),
        };
        Ok((WatchedWorkload::find(&cluster, &game).await?, rights))
    };
    match found.await {
        Ok((watched, rights)) => {
            let show = move |state: &_, now| workload::show(state, rights, now);
            follow(Watch::start(watched), show).into_response()
        }
        Err(error) => failure(&error).into_response(),
    }
}

async fn change(
    State(site): Shared,
    Extension(cluster): Extension<Cluster>,
    Path(path): Place,
    action: Result<Json<Action>, JsonRejection>,
) -> Result<Response, Error> {
    if !site.visitors.may_act() {
        return refuse("this page only shows: changes are switched off (view.actions)");
    }
    let Json(action) = action.map_err(|error| Error::Usage(error.body_text()))?;
    let (cluster, reference) = place(&cluster, path)?;
    let done = act(&cluster, &reference, &action).await?;
    let (outcome, note) = (sanitize(&done.outcome), done.note.as_deref().map(sanitize));
    Ok(Json(json!({"outcome": outcome, "note": note})).into_response())
}

#[derive(Deserialize)]
struct Two {
    from: i64,
    to: i64,
}

async fn compare(
    Extension(cluster): Extension<Cluster>,
    Path(path): Place,
    Query(two): Query<Two>,
) -> Result<Response, Error> {
    let (cluster, reference) = place(&cluster, path)?;
    let scene = cluster.scene(&reference).await?;
    Ok(Json(differences(&scene, two.from, two.to)?).into_response())
}
