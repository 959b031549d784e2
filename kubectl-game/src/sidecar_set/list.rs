//! `kubectl game get scs`: SidecarSets in a table.

use jiff::Timestamp;

use super::set::Set;
use super::short_name;
use super::verdict::judge;
use crate::age::age;
use crate::style::Style;
use crate::table::{Cell, Table};

pub fn list(sets: &[Set], style: Style, now: Timestamp) -> String {
    let mut table = Table::new([
        "NAME",
        "STATUS",
        "MATCHED",
        "UPDATED",
        "UPDATED_READY",
        "READY",
        "UNINJECTED",
        "REVISION",
        "AGE",
    ]);
    for set in sets {
        let (verdict, status) = (judge(set), set.status());
        table.push([
            Cell::from(short_name(set.name())),
            Cell::state(verdict.tone(), verdict.label()),
            status.matched_pods.to_string().into(),
            status.updated_pods.to_string().into(),
            status.updated_ready_pods.to_string().into(),
            status.ready_pods.to_string().into(),
            status.uninjected_pods.to_string().into(),
            status.latest_revision.into(),
            age(set.created(), now).into(),
        ]);
    }
    table.render(style)
}
