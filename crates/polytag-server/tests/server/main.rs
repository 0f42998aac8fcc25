//! The server in process: requests in, answers out, and what is left on the disk.

#![allow(clippy::unwrap_used)]

mod api; // what is asked is answered, and what is wrong is told
mod database; // PostgreSQL servers for tests
mod database_search; // labels that are searched there
mod durable; // what was acknowledged stays
mod lab; // a small model behind the API
mod load; // batches, limits, dropped clients, closing
mod postgres; // labels that several servers share
