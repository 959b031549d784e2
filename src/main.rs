//! The `gamekeeper` binary.

fn main() {}
