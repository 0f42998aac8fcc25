//! What an objective made ahead.

use super::Place;

/// What was made ahead for one place of a training: the next one, as a rule.
#[derive(Debug)]
pub struct Ahead<T>(Option<(Place, T)>);

impl<T> Default for Ahead<T> {
    fn default() -> Ahead<T> {
        Ahead(None)
    }
}

impl<T> Ahead<T> {
    /// Keeps what was made for `place`, and forgets what was kept before.
    pub fn put(&mut self, place: Place, made: T) {
        self.0 = Some((place, made));
    }

    /// What was made for `place`; nothing, if that was another one.
    pub fn take(&mut self, place: Place) -> Option<T> {
        self.0.take().filter(|(at, _)| *at == place).map(|(_, made)| made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_for_a_place_is_taken_there() {
        let at = |step| Place { step, part: 0 };
        let mut ahead = Ahead::default();
        assert_eq!(ahead.take(at(0)), None);
        ahead.put(at(1), "one");
        ahead.put(at(2), "two");
        assert_eq!((ahead.take(at(2)), ahead.take(at(2))), (Some("two"), None));
        ahead.put(at(3), "three");
        assert_eq!((ahead.take(at(4)), ahead.take(at(3))), (None, None));
    }
}
