//! The documents show the examples unchanged, their links resolve, and the README is short.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use gamekeeper_core::api::MetricProvider;
use regex::Regex;
use sources::root;

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_on_hooks_shows_the_examples_unchanged() {
    let page = read("docs/hooks.md");
    for provider in MetricProvider::NAMES {
        let example = read(format!("examples/hooks/hook-template-{provider}.yaml"));
        assert!(
            page.contains(&format!("```yaml\n{example}```\n")),
            "docs/hooks.md shows a different example of {provider}"
        );
    }
}

#[test]
fn the_page_on_gitops_shows_the_health_check_unchanged() {
    let script = read("release/argo-cd/tkex.tencent.com/GameDeployment/health.lua");
    let lines = script.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("      {line}\n"),
    });
    assert!(read("docs/gitops.md").contains(&lines.collect::<String>()));
}

#[test]
fn the_readme_has_at_most_200_lines() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 200, "README.md has {lines} lines");
}

#[test]
fn each_page_is_in_the_index() {
    let index = read("docs/README.md");
    for page in fs::read_dir(root().join("docs")).expect("docs") {
        let name = page.expect("an entry").file_name();
        let name = name.to_string_lossy();
        let is_page = name.ends_with(".md") && name != "README.md";
        let is_listed = !is_page || index.contains(&format!("]({name})"));
        assert!(is_listed, "docs/README.md does not list {name}");
    }
}

#[test]
fn relative_links_resolve() {
    let documents = documents();
    assert!(documents.len() > 15, "{documents:?}");
    let texts: BTreeMap<PathBuf, String> =
        documents.into_iter().map(|path| (path.clone(), prose(&read(&path)))).collect();
    let mut checked = 0;
    let mut broken = Vec::new();
    for (document, text) in &texts {
        for link in links(text) {
            checked += 1;
            if let Err(why) = resolve(document, &link, &texts) {
                broken.push(format!("{}: {link}: {why}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(checked > 50, "found only {checked} links");
}

/// Paths of all Markdown files in the repository.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            let is_folder = entry.file_type().expect("a type").is_dir();
            if is_folder && !is_hidden && path != Path::new("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// A document without its fenced and indented blocks.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence && !line.starts_with("    ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Targets of the links to other files and sections.
fn links(text: &str) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("an expression");
    let targets = link.captures_iter(text).map(|it| it[1].to_owned());
    targets.filter(|it| !it.contains("://")).collect()
}

/// Checks that a link's file exists, and has the section that the link names.
fn resolve(
    document: &Path,
    link: &str,
    texts: &BTreeMap<PathBuf, String>,
) -> Result<(), &'static str> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => document.to_owned(),
        file => normalized(&document.parent().unwrap_or(Path::new("")).join(file)),
    };
    if !root().join(&target).exists() {
        return Err("no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let text = texts.get(&target).ok_or("not a document with sections")?;
    match anchors(text).contains(anchor) {
        true => Ok(()),
        false => Err("no such section"),
    }
}

/// A path without `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                normalized.pop();
            }
            part => normalized.push(part),
        }
    }
    normalized
}

/// Anchors of the headings, as GitHub derives them: in lower case, without punctuation, and with dashes for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let anchors = titles.map(|title| {
        let kept = title.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    });
    anchors.collect()
}

/// The rows of the tables of a section whose last column has this title, as cells.
fn rows<'t>(section: &'t str, last: &str) -> Vec<Vec<&'t str>> {
    let cells = |line: &'t str| -> Vec<&'t str> {
        line.trim_matches('|').split(" | ").map(str::trim).collect()
    };
    let tables = section.split("\n\n").filter(|it| it.starts_with('|'));
    let tables = tables.map(|it| it.lines().map(cells).collect::<Vec<_>>());
    let tables = tables.filter(|rows| rows[0].last() == Some(&last));
    tables.flat_map(|rows| rows.into_iter().skip(2)).collect()
}

/// A bound that no test reaches may have been lost.
#[test]
fn each_bound_on_what_tenants_can_use_has_a_test() {
    let page = read("docs/security.md");
    let start = page.find("## What a HookTemplate can do").expect("the first table");
    let end = page.find("## HookRuns of workloads").expect("the end of the tables");
    let folders = ["src", "core/src", "tests", "e2e/src", "e2e/tests", "lint-command/src"];
    let sources = folders.iter().flat_map(|folder| sources::files(&root().join(folder)));
    let sources: Vec<String> = sources.map(read).collect();
    let name = Regex::new("`([a-z0-9_]+)`").expect("an expression");
    let rows = rows(&page[start..end], "test");
    assert!(rows.len() > 40, "only {} rows", rows.len());
    for row in rows {
        let tests: Vec<&str> = name
            .captures_iter(row[row.len() - 1])
            .map(|it| it.get(1).map_or("", |it| it.as_str()))
            .collect();
        assert!(!tests.is_empty(), "no test: {}", row[0]);
        for test in tests {
            let is_defined = sources.iter().any(|it| it.contains(&format!("fn {test}(")));
            assert!(is_defined, "{}: there is no test {test}", row[0]);
        }
    }
}

/// The variants of an enum in a source file.
fn variants(file: &str, name: &str) -> Vec<String> {
    let source = read(file);
    let body = source.split_once(&format!("pub enum {name} {{")).expect("the enum").1;
    let body = body.split_once("\n}").expect("its end").0;
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(|line| line.strip_suffix(',')).map(str::to_owned).collect()
}

/// The strings in a source file that look like reasons, outside of tests.
fn reasons_in(file: &str) -> Vec<String> {
    let source = read(file);
    let reason = Regex::new(
        r#"(?:false, |true, |true => |false => |: &str = |^\s+)"([A-Z][a-zA-Z]+)"[,;)]?"#,
    )
    .expect("a pattern");
    let lines = source.lines().filter(|line| !line.contains("assert"));
    let found = lines.filter_map(|line| Some(reason.captures(line)?[1].to_owned()));
    found.collect()
}

#[test]
fn the_page_on_status_has_each_word_and_each_reason() {
    let page = read("docs/status.md");
    let section = |title: &str| {
        let text = page.split_once(&format!("## {title}\n")).expect("a section").1;
        text.split("\n## ").next().unwrap_or_default().to_owned()
    };
    let documented = |text: &str| {
        let rows =
            text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| reason"));
        let names = rows.filter_map(|row| row.split('|').nth(1));
        let names = names.flat_map(|names| names.split(", ")).map(|name| name.trim().to_owned());
        names.collect::<BTreeSet<String>>()
    };
    let titles =
        ["Pods that do not start, run or end", "Hooks and pauses", "Conditions of workloads"];
    let workloads = titles.map(|title| documented(&section(title))).into_iter().flatten();
    let workloads: BTreeSet<String> = workloads.collect();
    let known = variants("core/src/api/condition.rs", "Reason").into_iter().collect();
    assert_eq!(workloads, known, "reasons of workloads");
    let clusters = documented(&section("Conditions of Clusters"));
    let known = variants("core/src/lifecycle/conditions.rs", "LifecycleReason");
    assert_eq!(clusters, known.into_iter().collect(), "reasons of Clusters");
    let sets = documented(&section("Conditions of SidecarSets"));
    let known = reasons_in("core/src/sidecar_set/status.rs");
    let missing: Vec<&String> = known.iter().filter(|it| !sets.contains(*it)).collect();
    assert!(known.len() > 15 && missing.is_empty(), "{known:?}: not documented: {missing:?}");
    let words = section("Words of STATUS");
    let verdicts =
        ["verdict.rs", "verdict/hooks.rs", "verdict/troubles.rs", "sidecar_set/verdict.rs"];
    let word = Regex::new(r#"(?:End::\w+, |\(End::\w+, )"([A-Z]\w+)""#).expect("a pattern");
    let mut found = 0;
    for file in verdicts {
        for used in word.captures_iter(&read(format!("kubectl-game/src/{file}"))) {
            found += 1;
            assert!(words.contains(&format!("\n| {} |", &used[1])), "{file}: {}", &used[1]);
        }
    }
    assert!(found > 10, "found only {found} words");
    let actors = section("Who acts");
    for actor in variants("core/src/api/cause.rs", "Actor") {
        assert!(actors.contains(&format!("| {actor} |")), "{actor}");
    }
}
