//! What the API server says when it refuses, in its own form.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

use super::script::Fault;

/// The answer to a request that a fault refuses; None if it is none that does.
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
            "the object is invalid: a webhook that is being replaced says so",
        ),
        Fault::Busy(_) => (
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "too many requests, please try again later",
        ),
        Fault::Failing => (
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
        Fault::Late(_) | Fault::Twice | Fault::Cut => return None,
    };
    // An invalid object is told by its kind; a patch whose test fails is not.
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
        "details": {"kind": "any"},
    });
    let mut answer = Response::new(status.to_string().into_bytes());
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    if let Fault::Busy(seconds) = fault {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    Some(answer)
}
