//! Models behind HTTP: an API, and a page where people tag text and add labels.
//!
//! Requests enter through [`api`], which checks who asks ([`keys`]) and how much ([`config`]); texts wait at a model's
//! `desk`, which answers them in batches; a [`served`] model changes its labels in their [`store`] before it says so. What
//! happened is told by `metrics` to machines and by the [`journal`] to people.
//!
//! This crate reads no environment variable and prints nothing: the command line gives it a checked [`Server`] and a
//! place to write.

mod clock; // the time of day, in words
pub mod config; // what a server allows, checked once
pub mod keys; // who may do what
mod metrics; // counts for machines
pub mod journal; // lines for people: changes of labels, faults
mod desk; // texts gathered into batches
mod feedback; // what people accepted and rejected, for the next fit
mod neighbours; // training documents like a text
mod live; // a model with its labels as they are
pub mod store; // where changes of labels are kept: the model folder, or a database
pub mod served; // a model that is asked and changed
pub mod api; // requests in, answers out
mod page; // the page, embedded
mod listen; // sockets, TLS, draining

pub use config::{Server, ServerConfig};
pub use listen::{ServeError, Serving, serve};
pub use served::OpenError;
