//! Error responses in the format of the API server.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

use super::script::Fault;

/// The response to a request that a fault refuses; None for a fault that refuses nothing.
pub fn refusal(fault: Fault) -> Option<Response<Vec<u8>>> {
    let (code, reason, message) = match fault {
        Fault::Conflict => (
            StatusCode::CONFLICT,
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your \
             changes to the latest version and try again",
        ),
        Fault::Invalid => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the object is invalid: a webhook that is being replaced refuses it",
        ),
        Fault::TooManyRequests(_) => (
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "too many requests, please try again later",
        ),
        Fault::InternalError => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "an error on the server (etcdserver: leader changed) has prevented the request",
        ),
        Fault::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        Fault::Lost => (
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request",
        ),
        Fault::Delay(_) | Fault::Duplicate | Fault::Truncate => return None,
    };
    // `details` names a kind, as in the error for an invalid object. The error for a failed JSON patch test names none.
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
        "details": {"kind": "any"},
    });
    let mut response = Response::new(status.to_string().into_bytes());
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    if let Fault::TooManyRequests(seconds) = fault {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    Some(response)
}
