//! `gamekeeper try`: its output and exit code.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Starts a server that answers with these ages, one per call, and returns its port.
fn serve(ages: &'static [i64]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for (stream, age) in listener.incoming().zip(ages) {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let body = format!("{{\"age\":{age}}}");
            let length = body.len();
            let response = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(response.as_bytes());
        }
    });
    port
}

fn template(port: u16) -> String {
    format!(
        "kind: HookTemplate
metadata: {{name: test}}
spec:
  metrics:
  - name: webtest
    count: 3
    interval: 1s
    failureLimit: 1
    inconclusiveLimit: 1
    consecutiveErrorLimit: 0
    successCondition: asInt(result) > 30
    failureCondition: asInt(result) < 20
    provider:
      web:
        url: http://{{{{ args.PodIP }}}}:{port}
        jsonPath: '{{$.age}}'
"
    )
}

/// Runs `gamekeeper try` on a template, and returns its output and exit code.
fn run(template: &str, args: &[&str]) -> (String, i32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gamekeeper"))
        .args(["try", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut stdin = child.stdin.take().expect("the program's input");
    // With invalid arguments the program exits before it reads the template.
    if let Err(error) = stdin.write_all(template.as_bytes()) {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("the program's output");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    (stdout + &stderr, output.status.code().expect("an exit code"))
}

#[test]
fn measurements_are_shown_and_the_exit_code_follows_the_phase() {
    let args = ["--arg", "PodIP=127.0.0.1"];
    assert_eq!(
        run(&template(serve(&[45, 10, 46])), &args),
        (
            "webtest 1: Successful 45\n\
             webtest 2: Failed failureCondition asInt(result) < 20 holds: result is 10\n\
             webtest 3: Successful 46\n\
             Successful\n"
                .into(),
            0
        )
    );
    for (ages, code, expected) in [
        (&[10, 10][..], 1, "Failed: measurement 2 of metric webtest: "),
        (&[25, 25][..], 3, "Inconclusive: measurement 2 of metric webtest: "),
        (
            &[45][..],
            2,
            "Error: measurement 2 of metric webtest: no response from http://127.0.0.1:",
        ),
    ] {
        let (shown, exit) = run(&template(serve(ages)), &args);
        let last = shown.lines().last().unwrap_or_default();
        assert!(last.starts_with(expected), "{shown}");
        assert_eq!(exit, code, "{shown}");
    }
}

#[test]
fn a_template_that_cannot_run_ends_in_an_error_with_a_reason() {
    let with_condition =
        |condition| template(serve(&[45])).replace("asInt(result) > 30", condition);
    let template = template(1);
    for (template, args, expected) in [
        (template.clone(), &[][..], "gamekeeper: no value for PodIP: add --arg"),
        (
            template.replace("successCondition", "sucessCondition"),
            &["--arg", "PodIP=127.0.0.1"][..],
            "gamekeeper: -:11: spec.metrics[0].sucessCondition: unknown field ",
        ),
        (
            with_condition("result startsWith '45'"),
            &["--arg", "PodIP=127.0.0.1"][..],
            "it is not CEL: write TEXT.startsWith(\"START\") in place of TEXT startsWith \"START\"",
        ),
        (
            with_condition("asInt(result) in 1..3"),
            &["--arg", "PodIP=127.0.0.1"][..],
            "it is not CEL: write x >= A && x <= B in place of x in A..B",
        ),
        (template, &["--arg", "PodIP"][..], "write NAME=VALUE"),
    ] {
        let (shown, exit) = run(&template, args);
        assert!(shown.contains(expected), "{shown}");
        assert_eq!(exit, 2, "{shown}");
    }
}

#[test]
fn a_command_is_run_on_this_machine_only_if_the_user_allows_it() {
    let template = "kind: HookTemplate
metadata: {name: test}
spec:
  metrics:
  - name: players
    consecutiveErrorLimit: 0
    successCondition: asInt(result) == 0
    provider:
      exec:
        container: game
        command: [printf, '%s', '{{ args.players }}']
";
    let zero = ["--arg", "players=0"];
    let (shown, exit) = run(template, &zero);
    assert!(shown.contains("the command was not run: with --exec-locally"), "{shown}");
    assert_eq!(exit, 2, "{shown}");
    for (players, expected, code) in [
        ("players=0", "players 1: Successful 0\nSuccessful\n", 0),
        // An argument is always one element of the command, whatever it contains.
        ("players=1; $(exit 1)", "is not a whole number: ", 2),
    ] {
        let (shown, exit) = run(template, &["--exec-locally", "--arg", players]);
        assert!(shown.contains(expected), "{shown}");
        assert_eq!(exit, code, "{shown}");
    }
}
