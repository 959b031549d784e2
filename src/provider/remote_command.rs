//! Commands in containers, through the exec subresource of the API server.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams};
use kube::{Client, Error};

use super::command_output::CommandOutput;
use super::exec::Ended;
use gamekeeper_core::causes::with_causes;
use gamekeeper_core::hook_run::allowed_by;

/// How many bytes of output are buffered between the connection and its reader.
const BUFFER: usize = 4 << 10;

/// Runs a command in a container, without input and without a terminal. When this future is dropped, the connection
/// is closed, but the process in the container may continue.
pub(super) async fn run(
    client: &Client,
    namespace: &str,
    pod: &str,
    container: &str,
    command: Vec<String>,
) -> Result<Ended, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = AttachParams::default()
        .container(container)
        .max_stdout_buf_size(BUFFER)
        .max_stderr_buf_size(BUFFER);
    let started = pods.exec(pod, command, &params).await;
    let mut process = started.map_err(|error| refused(pod, error))?;
    let streams = (process.stdout(), process.stderr(), process.take_status());
    let (Some(stdout), Some(stderr), Some(status)) = streams else {
        return Err("the command's output cannot be read".into());
    };
    // If there is no status, the connection was lost, and the streams do not end.
    let status = async {
        let lost = "the connection was lost before the command exited, so it may still be running";
        status.await.ok_or_else(|| lost.to_owned())
    };
    let (output, status) = tokio::try_join!(CommandOutput::read(stdout, stderr), status)?;
    Ok(Ended { code: exit_code(status), output })
}

/// Why a command was not started.
fn refused(pod: &str, error: Error) -> String {
    match error {
        Error::Api(status) if status.code == 403 => allowed_by(&status.message, "hooks.exec"),
        Error::Api(status) => status.message,
        error => {
            let why = with_causes(&error);
            format!("the command could not be started in pod {pod}: {why}")
        }
    }
}

/// Reads the exit code from the status of a command. The error says why there is none.
fn exit_code(status: Status) -> Result<i32, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.and_then(|details| details.causes);
    let mut causes = causes.into_iter().flatten();
    let cause = causes.find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = cause.and_then(|cause| cause.message?.parse().ok());
    let why = status.message.unwrap_or_default();
    code.ok_or_else(|| format!("the command has no exit code: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_exit_code_is_read_from_the_status() {
        let failure = |causes: Value| {
            json!({
                "status": "Failure", "reason": "NonZeroExitCode", "message": "a reason",
                "details": {"causes": causes},
            })
        };
        let none = Err("the command has no exit code: a reason".to_owned());
        for (status, expected) in [
            (json!({"metadata": {}, "status": "Success"}), Ok(0)),
            (failure(json!([{"reason": "ExitCode", "message": "3"}])), Ok(3)),
            (
                failure(
                    json!([{"reason": "Other", "message": "4"}, {"reason": "ExitCode", "message": "127"}]),
                ),
                Ok(127),
            ),
            (failure(json!([{"reason": "ExitCode", "message": "three"}])), none.clone()),
            (failure(json!([{"reason": "ExitCode"}])), none.clone()),
            (failure(json!([])), none.clone()),
            (json!({"status": "Failure", "message": "a reason"}), none.clone()),
            (json!({"message": "a reason"}), none),
        ] {
            let parsed: Status = serde_json::from_value(status.clone()).expect("a status");
            assert_eq!(exit_code(parsed), expected, "{status}");
        }
    }
}
