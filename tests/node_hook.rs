//! Tests `gamekeeper node-hook` against the mount namespace of another process (`unshare`), which has a file system of
//! its own on /opt. The tests require root; without it, each of them prints one line and is skipped.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use std::io::Read;

/// The directory on the "node" that scripts are copied to. The same directory on this machine is not changed.
const NODE_DIRECTORY: &str = "/opt";

/// The files to copy, and a process in another mount namespace that acts as the node.
struct Stage {
    folder: PathBuf,
    node: Child,
}

impl Stage {
    /// None if the machine does not permit mounts.
    fn new(name: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("node-hook-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("sources/0")).expect("a folder");
        let script = format!(
            "mount -t tmpfs none {NODE_DIRECTORY} && mount -t tmpfs none /run && echo ready && exec sleep 600"
        );
        let node = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut node = node.ok()?;
        let mut ready = [0; 5];
        let mut output = node.stdout.take().expect("a pipe");
        let stage = Self { folder, node };
        match output.read_exact(&mut ready) {
            Ok(()) => Some(stage),
            Err(_) => {
                eprintln!("skipped {name}: unshare --mount and mount need root");
                None
            }
        }
    }

    fn write_source(&self, path: &str, text: &str) -> PathBuf {
        let path = self.source_path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }

    fn source_path(&self, path: &str) -> PathBuf {
        self.folder.join("sources/0").join(path)
    }

    /// Runs node-hook in a mount namespace of its own, with the sources mounted at /mnt/0. In a Job, they are mounted
    /// at /sources/NAME.
    fn run(&self, arguments: &[&str]) -> Output {
        let log = self.folder.join("termination-log");
        fs::write(&log, "").expect("a file");
        let mount = format!(
            "mkdir -p /mnt/0 && mount -t tmpfs none /mnt && mkdir -p /mnt/0 && mount --bind {} /mnt/0 && exec \"$@\"",
            self.folder.join("sources/0").display()
        );
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &mount, "sh"])
            .arg(env!("CARGO_BIN_EXE_gamekeeper"))
            .args(["node-hook", "--node-process", &self.node.id().to_string()])
            .arg("--termination-log")
            .arg(&log)
            .args(arguments)
            .env("NODE", "world-2")
            .env("CONTAINER_SECRET", "x")
            .output()
            .expect("node-hook runs")
    }

    fn message(&self) -> String {
        fs::read_to_string(self.folder.join("termination-log")).expect("a file")
    }

    /// A file on the node.
    fn on_node(&self, path: &str) -> PathBuf {
        Path::new(&format!("/proc/{}/root{path}", self.node.id())).to_owned()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn files_are_copied_and_the_script_gets_its_arguments_unchanged() {
    let Some(stage) = Stage::new("arguments") else {
        return;
    };
    stage.write_source(
        "pre/show",
        "#!/bin/sh\nfor word in \"$@\"; do echo \"[$word]\"; done\necho \"$PWD $NODE $HOME $CONTAINER_SECRET\"\n",
    );
    stage.write_source("pre/other", "data");
    // The layout in which a kubelet mounts a ConfigMap.
    let link = stage.source_path("pre/..data");
    symlink("..2026", &link).expect("a link");
    stage.write_source("pre/..2026/key", "of a ConfigMap");
    symlink("..data/key", stage.source_path("pre/key")).expect("a link");
    let dst = format!("{NODE_DIRECTORY}/a/b");
    let program = format!("{dst}/show");
    let words = ["a=b c", "$(id)", "\"'", "$$", "{{ args.x }}", "", "--flag"];
    let mut arguments = vec!["--copy", "/mnt/0/pre", &dst, "--", &program];
    arguments.extend(words);
    let output = stage.run(&arguments);
    let shown: String = words.iter().map(|word| format!("[{word}]\n")).collect();
    assert_eq!(text(&output.stdout), format!("{shown}/ world-2 /root \n"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stage.message(), "");
    for (name, content) in [("other", "data"), ("key", "of a ConfigMap")] {
        let copied = stage.on_node(&format!("{dst}/{name}"));
        assert_eq!(fs::read_to_string(&copied).expect(name), content);
        let mode = copied.metadata().expect(name).permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{name}");
    }
    let mut names: Vec<_> = fs::read_dir(stage.on_node(&dst))
        .expect("the folder")
        .map(|it| text(it.expect("an entry").file_name().as_encoded_bytes()))
        .collect();
    names.sort();
    assert_eq!(names, ["key", "other", "show"]);
    assert!(!Path::new(&program).exists(), "the script was copied to this machine");
}

#[test]
fn the_exit_code_and_the_end_of_stderr_are_reported() {
    let Some(stage) = Stage::new("exit") else {
        return;
    };
    let dst = format!("{NODE_DIRECTORY}/script");
    let run = |script: &str| {
        stage.write_source("script", script);
        let output = stage.run(&["--copy", "/mnt/0/script", &dst, "--", &dst]);
        (output.status.code(), stage.message(), output)
    };
    let (code, message, output) =
        run("#!/bin/sh\necho out\necho first >&2\necho 'disk full' >&2\nexit 3\n");
    assert_eq!((code, message.as_str()), (Some(3), "stderr: first; disk full"));
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(text(&output.stderr), "first\ndisk full\n");
    let (code, message, _) = run("#!/bin/sh\nkill -9 $$\n");
    assert_eq!((code, message.as_str()), (Some(137), ""));
    // A background process does not delay the end.
    let (code, message, _) = run("#!/bin/sh\nsleep 500 >/dev/null &\necho left >&2\nexit 1\n");
    assert_eq!((code, message.as_str()), (Some(1), "stderr: left"));
    let (code, message, _) = run("echo without a first line\n");
    assert_eq!(code, Some(125));
    assert!(message.contains("begin it with a line such as #!/bin/sh"), "{message}");
    let (code, message, _) = run("#!/no/such/interpreter\n");
    assert_eq!(code, Some(125));
    assert!(message.contains("the interpreter in its first line"), "{message}");
}

#[test]
fn files_must_be_regular_and_within_their_source() {
    let Some(stage) = Stage::new("sources") else {
        return;
    };
    stage.write_source("dir/sub/file", "x");
    stage.write_source("dir/file", "x");
    // What a kubelet mounts for a missing ConfigMap.
    stage.write_source("empty/..2026/x", "");
    symlink("/etc/passwd", stage.source_path("outside")).expect("a link");
    symlink("../outside", stage.source_path("dir2")).expect("a link");
    symlink("/dev/null", stage.source_path("device")).expect("a link");
    symlink("dir/file", stage.source_path("inside")).expect("a link");
    let dst = format!("{NODE_DIRECTORY}/x");
    let copy = |src: &str| {
        let output = stage.run(&["--copy", &format!("/mnt/0/{src}"), &dst]);
        (output.status.code(), stage.message())
    };
    for (src, expected) in [
        ("missing", "cannot find /mnt/0/missing"),
        ("empty", "there is no file in /mnt/0/empty"),
        ("outside", "/mnt/0/outside links to /etc/passwd, outside of its source"),
        ("device", "links to /dev/null, outside of its source"),
        ("dir", "/mnt/0/dir/sub is a directory in a directory"),
    ] {
        let (code, message) = copy(src);
        assert_eq!(code, Some(125), "{src}");
        assert!(message.contains(expected), "{src}: {message}");
        assert!(!stage.on_node(&dst).exists(), "{src}");
    }
    assert_eq!(copy("inside"), (Some(0), String::new()));
    assert!(stage.on_node(&dst).exists());
    // An older file is replaced.
    stage.write_source("dir/file", "y");
    assert_eq!(copy("dir/file").0, Some(0));
    assert_eq!(fs::read_to_string(stage.on_node(&dst)).expect("a file"), "y");
}

#[test]
fn two_scripts_never_run_on_a_node_at_the_same_time() {
    let Some(stage) = Stage::new("lock") else {
        return;
    };
    let script = format!(
        "#!/bin/sh\nmkdir {NODE_DIRECTORY}/busy || exit 9\nsleep 0.3\nrmdir {NODE_DIRECTORY}/busy\n"
    );
    stage.write_source("script", &script);
    let dst = format!("{NODE_DIRECTORY}/script");
    std::thread::scope(|scope| {
        let runs = [1, 2, 3]
            .map(|_| scope.spawn(|| stage.run(&["--copy", "/mnt/0/script", &dst, "--", &dst])));
        for run in runs {
            let output = run.join().expect("the run ends");
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
    });
}

/// The scripts of examples/lifecycle/directories, with the arguments that the Job of a cluster hook passes to them.
#[test]
fn the_scripts_of_the_examples_print_labels_and_annotations() {
    let Some(stage) = Stage::new("examples") else {
        return;
    };
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/lifecycle/directories/scripts.yaml");
    let example = fs::read_to_string(example).expect("the example");
    for document in serde_yaml_ng::Deserializer::from_str(&example) {
        let config_map: serde_json::Value =
            serde::Deserialize::deserialize(document).expect("a ConfigMap");
        let folder = config_map["metadata"]["name"].as_str().expect("a name");
        for (name, script) in config_map["data"].as_object().expect("scripts") {
            stage.write_source(&format!("{folder}/{name}"), script.as_str().expect("text"));
        }
    }
    let dst = format!("{NODE_DIRECTORY}/hooks");
    for (folder, script, last) in [
        ("hooks-pre", "cluster-pre-install", "pre cluster install"),
        ("hooks-post", "cluster-post-install", "post cluster install"),
    ] {
        let program = format!("{dst}/{script}");
        let pairs = ["location=xa", "node.alpha.kubernetes.io/test=hello"];
        let src = format!("/mnt/0/{folder}");
        let output = stage.run(&["--copy", &src, &dst, "--", &program, pairs[0], pairs[1]]);
        let expected = "the cluster labels and annotations key=value pair:location=xa node.alpha.kubernetes.io/test=hello";
        assert_eq!(text(&output.stdout), format!("{expected}\n{last}\n"), "{output:?}");
    }
}
