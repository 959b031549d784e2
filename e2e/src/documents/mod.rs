//! What users read and open: documents, whose commands are typed as they stand there, and dashboards.

pub mod dashboard;
pub mod shell;
pub mod transcript;
