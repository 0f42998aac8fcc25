//! The `polytag` program, run as a process: what people type, and what they get.
//!
//! One binary, so that it is linked once. Each test works in a folder of its own.

// Helpers are test code too.
#![allow(clippy::unwrap_used)]

mod support; // a folder to work in, and the program in it

mod demo; // the whole story
mod import; // foreign formats in
mod inspect; // what a task holds
mod split; // tasks with less supervision
mod fit; // from task to model
mod predict; // documents in, labels out
mod tables; // columns in, columns out
mod folders; // folders of files, killed and begun again
mod serve; // asked over HTTP, killed and started again
mod evaluate; // how good it is
mod labels; // what a model can answer with
mod explain; // why it answers
mod encoders; // what turns text into vectors, fetched
mod frozen; // an encoder, all the way to an answer
mod index; // how label vectors are searched
mod fusion; // unseen labels from scores of another program
mod word_vectors; // averages of words, all the way to an answer
mod training; // encoders that learn from documents and labels
mod bench; // how fast it is
mod help; // what there is to type
mod bad_input; // what people get wrong
mod damage; // what disks and copies get wrong
mod disk; // no space, no permission, no patience
