//! The areas of tests that also run on other versions of Kubernetes (`e2e/compatibility`).

use anyhow::{Result, ensure};

use crate::trial::Test;

/// Each line is an area, and the beginning of the names of tests that belong to it.
const AREAS: &str = include_str!("../compatibility/areas");

/// Keeps the tests of the areas that `E2E_AREAS` lists, such as `install,canary`; all tests, if it is not set.
pub fn keep_selected(tests: &mut Vec<Test>) -> Result<()> {
    let lines = AREAS.lines().filter(|line| !line.starts_with('#'));
    let entries: Vec<(&str, &str)> = lines
        .filter_map(|line| line.split_once(' '))
        .map(|(area, names)| (area, names.trim()))
        .collect();
    for (area, names) in &entries {
        let is_used = tests.iter().any(|test| test.name().starts_with(names));
        ensure!(is_used, "the area {area} lists {names}, and no test has such a name");
    }
    let Ok(selected) = std::env::var("E2E_AREAS") else {
        return Ok(());
    };
    let selected: Vec<&str> = selected.split(',').collect();
    for area in &selected {
        let is_known = entries.iter().any(|(known, _)| known == area);
        ensure!(is_known, "E2E_AREAS lists {area}, which is not in e2e/compatibility/areas");
    }
    tests.retain(|test| {
        let mut of_selected = entries.iter().filter(|(area, _)| selected.contains(area));
        of_selected.any(|(_, names)| test.name().starts_with(names))
    });
    Ok(())
}
