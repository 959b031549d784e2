//! Checks the linter with the e2e tests' bad manifests. Each starts with the messages that kubectl prints when a real
//! API server refuses it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod argo;

use super::*;

fn entries(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths
}

fn manifests(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut paths = entries(folder);
    paths.retain(|path| path.is_file());
    paths
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a manifest")
}

fn errors<'a>(diagnostics: impl Iterator<Item = &'a Diagnostic>) -> BTreeSet<String> {
    let errors = diagnostics.filter(|it| it.finding.is_error());
    errors.map(|it| it.finding.to_string()).collect()
}

fn findings(texts: &[&str]) -> Vec<Diagnostic> {
    let source = |(index, text): (usize, &&str)| Source {
        name: format!("{index}.yaml"),
        text: (*text).to_owned(),
    };
    let sources: Vec<Source> = texts.iter().enumerate().map(source).collect();
    check(&sources).expect("no panic")
}

/// kubectl's messages about a manifest, without those that only the API server can give.
fn expected(text: &str) -> BTreeSet<String> {
    let comments = text.lines().map_while(|line| line.strip_prefix("# "));
    let mut expected = BTreeSet::new();
    for line in comments.filter(|line| !line.starts_with("after: ")) {
        let line = line.strip_prefix("expect: ").unwrap_or(line);
        if let Some((_, field)) = line.split_once("unknown field ") {
            expected.insert(format!("{}: unknown field {field}", field.trim_matches('"')));
            continue;
        }
        let line = line.split_once(" is invalid:").map_or(line, |(_, rest)| rest);
        let line = line.trim_start_matches(['*', ' ']);
        // The API server's notes on skipped rules and on the scale subresource are not findings.
        if line.is_empty()
            || line.starts_with('.')
            || line.contains("some validation rules were not checked")
        {
            continue;
        }
        expected.insert(line.strip_prefix("<nil>: ").unwrap_or(line).to_owned());
    }
    expected
}

#[test]
fn bad_manifests_get_the_messages_that_kubectl_prints() {
    let mut texts = Vec::new();
    for path in manifests("e2e/manifests/bad") {
        texts.push(read(&path));
    }
    // Errors about changes do not show in a single manifest.
    texts.retain(|text| !text.starts_with("# after: "));
    for path in manifests("e2e/manifests/admission") {
        texts.push(read(&path));
    }
    let bad_count = texts.len();
    for path in manifests("e2e/manifests/admission/templates") {
        texts.push(read(&path));
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let diagnostics = findings(&texts);
    let mut wrong = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let name = format!("{index}.yaml");
        let found = errors(diagnostics.iter().filter(|it| it.file == name));
        if found != expected(text) {
            wrong.push(format!("{text}found: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(bad_count >= 120, "only {bad_count} bad manifests were found");
}

#[test]
fn warned_manifests_get_the_warnings_that_kubectl_prints() {
    let warned = manifests("e2e/manifests/warned");
    let templates = manifests("e2e/manifests/warned/templates");
    let texts: Vec<String> = warned.iter().chain(&templates).map(|it| read(it)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let diagnostics = findings(&texts);
    for (index, path) in warned.iter().enumerate() {
        let name = format!("{index}.yaml");
        let file_diagnostics = diagnostics.iter().filter(|it| it.file == name);
        let (errors, warnings): (Vec<_>, Vec<_>) =
            file_diagnostics.partition(|it| it.finding.is_error());
        let found: BTreeSet<String> = warnings.iter().map(|it| it.finding.to_string()).collect();
        assert!(errors.is_empty(), "{path:?}: {errors:#?}");
        assert_eq!(found, expected(texts[index]), "{path:?}");
    }
    assert!(warned.len() >= 18, "only {} manifests", warned.len());
}

#[test]
fn manifests_in_the_style_of_bk_bcs_get_few_warnings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/manifests/good");
    let text = read(&folder.join("as-bk-bcs.yaml"));
    let found: BTreeSet<String> =
        findings(&[&text]).iter().map(|it| it.finding.to_string()).collect();
    let expected = [
        "spec.updateStrategy.canary.steps[4].hook.templateName: Invalid value: HookTemplate \"players-gone\" needs a \
         value for PodIP; add it to the hook's args: a canary step concerns no pod, so the operator cannot supply \
         a value",
        "spec.updateStrategy.rollingUpdate.partition: Invalid value: 1: has no effect with canary.steps, after which \
         all pods are updated; remove it",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
}

#[test]
fn good_manifests_and_examples_are_not_refused() {
    let mut folders = entries("examples");
    folders.push("e2e/manifests/good".into());
    assert!(folders.len() >= 6, "{folders:?}");
    for folder in folders {
        let texts: Vec<String> = manifests(&folder).iter().map(|path| read(path)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let refused = errors(findings(&texts).iter());
        assert!(refused.is_empty(), "{folder:?}: {refused:#?}");
    }
}

const WORKLOAD: &str = "\
apiVersion: tkex.tencent.com/v1alpha1
kind: GameDeployment
metadata: {name: game}
spec:
  selector: {matchLabels: {app: game}}
  preDeleteUpdateStrategy:
    hook:
      templateName: check
  template:
    metadata: {labels: {app: game}}
    spec:
      containers: [{name: server, image: game:1}]
";

const TEMPLATE: &str = "\
apiVersion: tkex.tencent.com/v1alpha1
kind: HookTemplate
metadata: {name: check}
spec:
  args: [{name: team}]
  metrics:
  - name: players
    provider:
      web:
        url: http://{{ args.team }}
";

fn printed(texts: &[&str]) -> String {
    let lines: Vec<String> = findings(texts).iter().map(Diagnostic::to_string).collect();
    lines.join("\n")
}

#[test]
fn a_missing_template_causes_a_warning() {
    assert_eq!(
        printed(&[WORKLOAD]),
        "0.yaml:8: warning: spec.preDeleteUpdateStrategy.hook.templateName: Invalid value: HookTemplate \
         \"check\" does not exist in these files; create it, or name another one"
    );
}

#[test]
fn a_workload_is_checked_against_the_templates_of_other_files_and_documents() {
    let expected = "spec.preDeleteUpdateStrategy.hook.templateName: Invalid value: HookTemplate \
                    \"check\" needs a value for team; add it to the hook's args";
    assert_eq!(printed(&[WORKLOAD, TEMPLATE]), format!("0.yaml:8: {expected}"));
    let both = format!("# a comment\n---\n{TEMPLATE}---\n{WORKLOAD}");
    assert_eq!(printed(&[&both]), format!("0.yaml:21: {expected}"));
    let elsewhere = TEMPLATE.replace("name: check", "name: check, namespace: other");
    assert!(printed(&[WORKLOAD, &elsewhere]).contains("does not exist in these files"));
}

#[test]
fn conflicting_sidecar_sets_get_warnings() {
    let set = |name: &str, app: &str| {
        format!(
            "apiVersion: tkex.tencent.com/v1alpha1\nkind: SidecarSet\nmetadata: {{name: {name}}}\nspec:\n  \
             selector: {{matchLabels: {{app: {app}}}}}\n  containers:\n  - {{name: log, image: \"log:1\"}}\n"
        )
    };
    let (a, b) = (set("a", "game"), set("b", "game"));
    let expected = |file: usize, other: &str| {
        format!(
            "{file}.yaml:7: warning: spec.containers[0].name: Invalid value: \"log\": SidecarSet {other:?} may \
             select the same pods and has a container of this name too; rename one of the two, or \"b\" is left out \
             of these pods"
        )
    };
    let both = printed(&[&a, &b]);
    assert!(both.contains(&expected(0, "b")) && both.contains(&expected(1, "a")), "{both}");
    assert_eq!(printed(&[&a, &set("b", "web")]), "");
}

#[test]
fn a_sidecar_with_the_name_of_a_workloads_container_gets_a_warning() {
    let set = "apiVersion: tkex.tencent.com/v1alpha1\nkind: SidecarSet\nmetadata: {name: a}\nspec:\n  selector: \
               {matchLabels: {app: game}}\n  namespaceSelector: {matchLabels: {team: games}}\n  \
               containers:\n  - {name: server, image: \"log:1\"}\n";
    let game = WORKLOAD.replace("name: game}", "name: game, namespace: arena}");
    let namespace = |team: &str| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: arena, labels: {{team: {team}}}}}\n"
        )
    };
    let expected = "0.yaml:8: warning: spec.containers[0].name: Invalid value: \"server\": GameDeployment arena/game has a \
                    container \"server\"; rename one of the two, or this set is left out of its pods";
    for (namespace, warned) in
        [(String::new(), true), (namespace("games"), true), (namespace("web"), false)]
    {
        let found = printed(&[set, &game, &namespace]);
        assert_eq!(found.contains(expected), warned, "{namespace}: {found}");
    }
}

#[test]
fn a_budget_that_selects_guarded_pods_causes_a_warning() {
    let guarded = WORKLOAD.replace("  preDelete", "  protection: {pods: Guarded}\n  preDelete");
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: mine}\n\
                  spec: {maxUnavailable: 1, selector: {matchLabels: {app: game}}}\n";
    let found = |workload: &str, budget: &str| printed(&[workload, budget]);
    let expected = "0.yaml:6: warning: spec.protection.pods: Invalid value: PodDisruptionBudget \"mine\" also \
                    selects these pods, so their evictions fail with an error instead of waiting; delete it";
    assert!(found(&guarded, budget).contains(expected), "{}", found(&guarded, budget));
    for harmless in [
        budget.replace("app: game", "app: web"),
        budget.replace("name: mine", "name: mine, namespace: other"),
        budget.replace(
            "selector: {matchLabels: {app: game}}",
            "unhealthyPodEvictionPolicy: AlwaysAllow",
        ),
    ] {
        assert!(!found(&guarded, &harmless).contains("mine"), "{harmless}");
    }
    assert!(!found(WORKLOAD, budget).contains("mine"));
}

#[test]
fn a_finding_has_the_line_of_its_field_or_of_the_nearest_parent() {
    let bad = TEMPLATE
        .replace("    provider:", "    successCondition: players < 3\n    count: 3\n    provider:");
    assert_eq!(
        printed(&[&bad]),
        "0.yaml:7: spec.metrics[0].interval: Invalid value: is needed when count is more than 1; set one, \
         for example interval: 10s\n\
         0.yaml:8: spec.metrics[0].successCondition: Invalid value: \"players < 3\": players is not known: \
         write result or value"
    );
    let list =
        format!("kind: List\napiVersion: v1\nitems:\n- {}", bad.trim_end().replace('\n', "\n  "));
    assert!(
        printed(&[&list]).starts_with("0.yaml:10: spec.metrics[0].interval: "),
        "{}",
        printed(&[&list])
    );
}

#[test]
fn findings_about_the_whole_object_do_not_hide_those_about_fields() {
    let name = "a-game-whose-name-is-much-longer-than-a-label-can-hold";
    let text = WORKLOAD
        .replace("{name: game}", &format!("{{name: {name}}}"))
        .replace("labels: {app: game}", "labels: {app: game, \"zone!\": eu}");
    let refused = errors(findings(&[&text]).iter());
    for message in ["no longer than 52 characters", "Invalid value: \"zone!\""] {
        let is_reported = refused.iter().any(|it| it.contains(message));
        assert!(is_reported, "{message}: {refused:#?}");
    }
}

#[test]
fn fields_with_arbitrary_keys_are_accepted_in_templates() {
    let fields = "managedFields: [{manager: me, fieldsV1: {\"f:spec\": {\"f:x\": {}}}}], annotations: {a: b}";
    let managed = WORKLOAD.replace(
        "metadata: {labels: {app: game}}",
        &format!("metadata: {{labels: {{app: game}}, {fields}}}"),
    );
    assert!(managed.contains("fieldsV1"));
    let refused = errors(findings(&[&managed]).iter());
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn other_groups_are_ignored_and_unknown_kinds_of_our_group_are_errors() {
    assert_eq!(
        printed(&["kind: Service\napiVersion: v1\nspec: {replicas: three}\n---\n# empty\n"]),
        ""
    );
    let old = TEMPLATE.replace("v1alpha1", "v1");
    assert_eq!(
        printed(&[&old]),
        "0.yaml:1: apiVersion: Invalid value: \"tkex.tencent.com/v1\": write tkex.tencent.com/v1alpha1"
    );
    let other = TEMPLATE.replace("HookTemplate", "HookTemplates");
    assert!(
        printed(&[&other])
            .starts_with("0.yaml:2: kind: Invalid value: \"HookTemplates\": must be one of ")
    );
}

#[test]
fn yaml_is_read_as_kubectl_reads_it() {
    let yes =
        WORKLOAD.replace("{app: game}}\n    spec", "{app: game, paid: yes, mode: 0644}}\n    spec");
    let printed_yes = printed(&[&yes]);
    for expected in [
        "labels.paid in body must be of type string: \"boolean\"",
        "labels.mode in body must be of type string: \"integer\"",
    ] {
        assert!(printed_yes.contains(expected), "{printed_yes}");
    }
    let merged = "x: &x {app: game}\n".to_owned()
        + &WORKLOAD.replace("{matchLabels: {app: game}}", "{matchLabels: {<<: *x}}");
    assert!(printed(&[&merged]).contains("x: unknown field \"x\""));
    assert!(!printed(&[&merged]).contains("selector"), "{}", printed(&[&merged]));
    assert!(printed(&["a: [1"]).starts_with("0.yaml:"), "{}", printed(&["a: [1"]));
    let twice = WORKLOAD.to_owned() + "apiVersion: tkex.tencent.com/v1alpha1\n";
    let lines = WORKLOAD.lines().count() + 1;
    let expected = format!("0.yaml:{lines}: warning: apiVersion: is set more than once");
    assert!(printed(&[&twice]).contains(&expected), "{}", printed(&[&twice]));
}

#[test]
fn unknown_fields_of_jobs_and_claims_are_errors() {
    let job = "\
apiVersion: tkex.tencent.com/v1alpha1
kind: HookTemplate
metadata: {name: check}
spec:
  metrics:
  - name: backup
    provider:
      job:
        metadata: {labels: {any: label}, annotation: {}}
        spec:
          backoffLimt: 1
          template:
            spec:
              restartPolicy: Never
              nodeSelector: {any: label}
              containers: [{name: a, imagee: b, image: a, resources: {limits: {any.of/these: 1}}}]
";
    let claim = WORKLOAD.replace("GameDeployment", "GameStatefulSet").replace(
        "  template:\n",
        "  serviceName: game\n  volumeClaimTemplates:\n  - metadata: {name: maps}\n    spec: {storageClass: fast}\n  template:\n",
    );
    let job_path = "spec.metrics[0].provider.job";
    let pod_path = format!("{job_path}.spec.template.spec");
    let expected = [
        format!("0.yaml:9: {job_path}.metadata.annotation"),
        format!("0.yaml:11: {job_path}.spec.backoffLimt"),
        format!("0.yaml:16: {pod_path}.containers[0].imagee"),
        "1.yaml:12: spec.volumeClaimTemplates[0].spec.storageClass".into(),
    ];
    let unknown = |place: &String| {
        let field = place.split_once(": ").expect("a field").1;
        format!("{place}: unknown field {field:?}")
    };
    let expected: Vec<String> = expected.iter().map(unknown).collect();
    let found = printed(&[job, &claim]);
    let found: Vec<&str> = found.lines().filter(|it| !it.contains("warning: ")).collect();
    assert_eq!(found, expected);
}

#[test]
fn tkestack_examples_get_warnings_about_fields_that_have_no_effect() {
    for folder in entries("examples/lifecycle") {
        let files = entries(&folder);
        let texts: Vec<String> = files.iter().map(|path| read(path)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = findings(&texts);
        assert!(errors(found.iter()).is_empty(), "{found:#?}");
        let is_reported = |field: &str| found.iter().any(|it| it.finding.field == field);
        assert!(is_reported("spec.clusterCIDR") && is_reported("spec.machines[0].username"));
    }
}

#[test]
fn a_wrong_file_or_hook_of_a_cluster_is_refused() {
    let cluster = "apiVersion: tkex.tencent.com/v1alpha1\nkind: Cluster\nmetadata: {name: xa}\nspec:\n  features:\n    \
                   files: [{src: a/b/c, dst: /tmp/x}]\n    hooks: {PreInstall: /tmp/y}";
    let found = findings(&[cluster]);
    let found: Vec<_> = errors(found.iter()).into_iter().collect();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with(
        "spec.features.files[0].src: Invalid value: \"a/b/c\": ConfigMap a has no directories"
    ));
    assert!(found[1].starts_with(
        "spec.features.hooks.PreInstall: Invalid value: \"/tmp/y\": must begin with the dst"
    ));
}
