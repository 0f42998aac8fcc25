//! How a store is doing, for machines that watch and for those who must not wait for it in vain.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::StoreError;

/// What is known of a store.
pub(crate) struct Health(Mutex<State>);

struct State {
    figures: Figures,
    /// When it was last tried.
    tried: Instant,
    /// Since when it is as it is.
    since: Instant,
    /// Why nobody answers, if that is what is wrong.
    passing: Option<String>,
}

/// Counts of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// The last change that answers know of.
    pub(crate) revision: i64,
    /// What is wrong, if something is.
    pub(crate) problem: Option<String>,
    /// For how long it is as it is.
    pub(crate) lasting: Duration,
    /// How often it was not to be used.
    pub(crate) failures: u64,
    /// How many connections were made.
    pub(crate) connections: u64,
    /// Changes that other servers made, and this one took in.
    pub(crate) taken: u64,
    /// How often all labels were read anew, as the database was not what it was.
    pub(crate) rebuilds: u64,
}

/// What became of a store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It was there, and is not.
    Lost,
    /// It was not there, and is.
    Back,
    /// It is as it was.
    Same,
}

impl Health {
    pub(super) fn new() -> Health {
        let now = Instant::now();
        Health(Mutex::new(State { figures: Figures::default(), tried: now, since: now, passing: None }))
    }

    /// Notes how a try went.
    pub(super) fn note(&self, done: Result<(), &StoreError>) -> Turn {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.tried = Instant::now();
        let was = state.figures.problem.is_some();
        state.passing = match &done {
            Err(StoreError::Away { problem }) => Some(problem.clone()),
            Err(error @ StoreError::Late { .. }) => Some(error.to_string()),
            _ => None,
        };
        state.figures.problem = done.err().map(ToString::to_string);
        state.figures.failures += u64::from(done.is_err());
        match (was, done.is_err()) {
            (false, true) | (true, false) => {
                state.since = Instant::now();
                if was { Turn::Back } else { Turn::Lost }
            }
            _ => Turn::Same,
        }
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Figures)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).figures);
    }

    /// What was wrong a moment ago, if it passes by itself and was so short ago that it need not be tried again.
    pub(super) fn just_failed(&self, moment: Duration) -> Option<StoreError> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = state.passing.clone().filter(|_| state.tried.elapsed() < moment)?;
        Some(StoreError::Away { problem })
    }

    pub(super) fn figures(&self) -> Figures {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Figures { lasting: state.since.elapsed(), ..state.figures.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_lost_once_and_back_once() {
        let health = Health::new();
        let away = StoreError::Away { problem: "nobody".to_owned() };
        assert_eq!(health.note(Ok(())), Turn::Same);
        assert!(health.just_failed(Duration::from_secs(60)).is_none());
        assert_eq!(health.note(Err(&away)), Turn::Lost);
        assert_eq!(health.note(Err(&away)), Turn::Same);
        let told = health.just_failed(Duration::from_secs(60)).unwrap().to_string();
        assert_eq!(told, away.to_string());
        assert!(health.just_failed(Duration::ZERO).is_none());
        assert_eq!(health.note(Ok(())), Turn::Back);
        assert_eq!((health.figures().failures, health.figures().problem), (2, None));
    }
}
