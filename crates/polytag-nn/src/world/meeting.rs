//! Where the threads of a world wait for each other, on the host.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

type Given = Arc<dyn Any + Send + Sync>;

/// A place where everybody brings something and takes what all brought, again and again.
pub(super) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// How many rounds are over.
    rounds: u64,
    /// What was brought in this round, by rank.
    given: Vec<Option<Given>>,
    /// What was brought in the last one.
    last: Arc<Vec<Given>>,
    /// Who left before the end, if anybody did.
    broken_by: Option<usize>,
}

impl Meeting {
    pub(super) fn of(size: usize) -> Meeting {
        let state = State { rounds: 0, given: vec![None; size], last: Arc::default(), broken_by: None };
        Meeting { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Brings `value`, waits for all others, and gives what all brought, by rank.
    ///
    /// # Errors
    /// If somebody left before the end.
    pub(super) fn exchange<T: Send + Sync + 'static>(
        &self,
        rank: usize,
        value: T,
    ) -> Result<Vec<Arc<T>>, Error> {
        let mut state = self.state();
        if state.broken_by.is_some() {
            return Err(Error::Elsewhere);
        }
        let round = state.rounds;
        state.given[rank] = Some(Arc::new(value));
        if state.given.iter().all(Option::is_some) {
            state.last = Arc::new(state.given.iter_mut().filter_map(Option::take).collect());
            state.rounds += 1;
            self.changed.notify_all();
        }
        // A round that is over stays so, and the next one cannot end without this rank.
        while state.rounds == round && state.broken_by.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.rounds == round {
            return Err(Error::Elsewhere);
        }
        let last = Arc::clone(&state.last);
        drop(state);
        let own = |given: &Given| {
            Arc::clone(given).downcast().expect("all ranks run the same program, so they bring the same type")
        };
        Ok(last.iter().map(own).collect())
    }

    /// Somebody leaves before the end: nobody is waited for any more.
    pub(super) fn break_off(&self, rank: usize) {
        self.state().broken_by.get_or_insert(rank);
        self.changed.notify_all();
    }

    /// Who was the first to leave before the end.
    pub(super) fn broken_by(&self) -> Option<usize> {
        self.state().broken_by
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_takes_what_all_brought_in_every_round() {
        let meeting = Meeting::of(3);
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let meeting = &meeting;
                scope.spawn(move || {
                    for round in 0..200 {
                        let all = meeting.exchange(rank, (rank, round)).unwrap();
                        let all: Vec<(usize, i32)> = all.iter().map(|one| **one).collect();
                        assert_eq!(all, [(0, round), (1, round), (2, round)]);
                    }
                });
            }
        });
        assert_eq!(meeting.broken_by(), None);
    }

    #[test]
    fn nobody_waits_for_one_who_left() {
        let meeting = Meeting::of(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| meeting.exchange(0, ()));
            scope.spawn(|| meeting.break_off(1));
            assert!(matches!(waiting.join().unwrap(), Err(Error::Elsewhere)));
        });
        assert!(matches!(meeting.exchange(1, ()), Err(Error::Elsewhere)));
        assert_eq!(meeting.broken_by(), Some(1));
    }
}
