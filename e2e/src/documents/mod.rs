//! For tests of the documentation: runs the commands of documents, and reads the queries of dashboards.

pub mod dashboard;
pub mod reader;
pub mod shell;
pub mod transcript;
