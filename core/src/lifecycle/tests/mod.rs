//! Tests of plans for Clusters, in a small simulation of the API server and of Jobs.

mod install;
mod life;
mod runs;
mod sim;
mod upgrade;
