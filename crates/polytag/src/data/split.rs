//! New tasks out of old ones.
