//! The arithmetic of the CPU.
