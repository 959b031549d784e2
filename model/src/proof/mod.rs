//! Tests of the checker: each deliberate bug is found, and violates the expected rule.

mod guard;
mod hooks;
mod ordinals;
mod rollouts;
mod sidecars;

use std::io::Write as _;

use crate::explore::explore;
use crate::fault::Fault;
use crate::model::Model;
use crate::scope::{Scope, User};
use crate::start::start;

/// Explores a scope with a bug. The bug must be found, and must violate the expected rule.
fn find(fault: Fault, rule: &str, scope: Scope) {
    let mut model = Model::new(scope);
    let start = start(&model);
    model.plant(fault);
    let counterexample = match explore(&model, &start, rule == SETTLES) {
        Ok(explored) => panic!("{fault:?} is not found in {explored}"),
        Err(counterexample) => counterexample,
    };
    assert_eq!(counterexample.violation.rule, rule, "{fault:?}: {counterexample}");
    let moves = counterexample.moves.len();
    let line = format!("model: {fault:?} is found after {moves} moves: {rule}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("a terminal");
}

const HOOK: &str = "1: hook first";
const HOT_PATCHES: &str = "hot patches";
const GATE: &str = "gate closed";
const ENOUGH: &str = "2: enough pods";
const TOO_MANY: &str = "2: not too many pods";
const PARTITION: &str = "3: partition";
const PAUSES: &str = "4: pauses";
const PAUSED: &str = "5: paused";
const ONE_RUN: &str = "6: one HookRun";
const ORDINALS: &str = "7: ordinals";
const RESERVED: &str = "7: reserved ordinals";
const INDEXES: &str = "7: pod indexes";
const BATCHES: &str = "batches";
const ONE_TRIAL: &str = "one trial";
const GUARDED: &str = "11: guarded";
const NODES: &str = "nodes";
const SETTLES: &str = "settles";
const TOKEN: &str = "13: token";
const LIMIT: &str = "13: limit of the set";
const SET: &str = "13: the set's spec";
const GAME: &str = "13: game";
const ONE_CHANGE: &str = "13: one change";
const CANARY_STEPS: &str = "13: canary steps";
const INJECTED: &str = "13: injected";

/// A user changes the template, and changes it back.
fn updated() -> Vec<User> {
    vec![User::Template(1), User::Template(0)]
}

/// A user scales in, and out again.
fn scaled() -> Vec<User> {
    vec![User::Scale(2), User::Scale(3)]
}
