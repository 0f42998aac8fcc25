//! Numbers to places on a drawing, with ticks at round numbers.

use super::words::number;

/// Numbers beyond this have no place: their differences would overflow.
const LARGEST: f64 = 1e300;
/// Numbers below this are zero: steps between them would be.
const SMALLEST: f64 = 1e-290;

/// A stretch of numbers and the round steps in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// The axis from the least to the greatest of some numbers, with about `ticks` steps. Where there is
    /// nothing between them, it reaches a little to both sides; where there are none, from 0 to 1.
    pub(super) fn of(numbers: impl Iterator<Item = f64>, ticks: f64) -> Axis {
        let numbers =
            numbers.filter(|number| number.is_finite()).map(|number| number.clamp(-LARGEST, LARGEST));
        let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(number), high.max(number))
        });
        if low > high {
            return Axis::between(0.0, 1.0, ticks);
        }
        let size = low.abs().max(high.abs());
        if high - low > (size * 1e-9).max(SMALLEST) {
            return Axis::between(low, high, ticks);
        }
        let room = if size > SMALLEST { size * 0.1 } else { 1.0 };
        Axis::between(low - room, high + room, ticks)
    }

    fn between(low: f64, high: f64, ticks: f64) -> Axis {
        Axis { low, high, step: round_step((high - low) / ticks) }
    }

    /// The same axis, from a tick to a tick.
    pub(super) fn widened(self) -> Axis {
        let low = (self.low / self.step).floor() * self.step;
        let high = (self.high / self.step).ceil() * self.step;
        Axis { low, high, ..self }
    }

    /// The same axis with no ticks between whole numbers.
    pub(super) fn whole(self) -> Axis {
        Axis { step: self.step.max(1.0), ..self }
    }

    /// Where a number lies: 0 at the low end, 1 at the high end.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// Whether a number lies on the axis, up to rounding.
    pub(super) fn holds(&self, value: f64) -> bool {
        let share = self.share(value);
        (-1e-9..=1.0 + 1e-9).contains(&share)
    }

    /// The round numbers on the axis.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        let (first, step) = ((self.low / self.step - 1e-9).ceil(), self.step);
        let last = (self.high / self.step + 1e-9).floor();
        let ticks = (last - first).clamp(-1.0, 100.0) as i32 + 1;
        (0..ticks).map(move |tick| (first + f64::from(tick)) * step)
    }

    /// A number of this axis as text: with the decimals that ticks need, and some more.
    pub(super) fn text(&self, value: f64, more: usize) -> String {
        // The step is 1, 2 or 5 times a power of ten; half a digit more keeps its logarithm off the edge.
        let decimals = (-(self.step * 1.01).log10().floor()).max(0.0) as usize;
        number(value, decimals + more)
    }
}

/// The nearest one of 1, 2, 5 and 10 times a power of ten, by ratio.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powi(step.log10().floor() as i32);
    let factor = step / power;
    // The bounds are the geometric means of neighbours.
    let round = [(2f64.sqrt(), 1.0), (10f64.sqrt(), 2.0), (50f64.sqrt(), 5.0)];
    round.iter().find(|(bound, _)| factor < *bound).map_or(10.0, |(_, round)| *round) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: Axis) -> Vec<String> {
        axis.ticks().map(|tick| axis.text(tick, 0)).collect()
    }

    #[test]
    fn ticks_stand_at_round_numbers() {
        let axis = |low, high| Axis::of([low, high].into_iter(), 5.0);
        assert_eq!(texts(axis(0.0, 1.0)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(axis(0.0, 23456.0)), ["0", "5,000", "10,000", "15,000", "20,000"]);
        assert_eq!(texts(axis(-0.03, 0.05)), ["−0.02", "0.00", "0.02", "0.04"]);
        assert_eq!(texts(axis(31.2, 35.3).widened()), ["31", "32", "33", "34", "35", "36"]);
        assert_eq!(texts(axis(1.0, 3.0).whole()), ["1", "2", "3"]);
    }

    #[test]
    fn places_run_from_end_to_end() {
        let axis = Axis::of([2.0, 4.0, f64::NAN].into_iter(), 5.0);
        assert_eq!((axis.share(2.0), axis.share(3.0), axis.share(4.0)), (0.0, 0.5, 1.0));
        assert!(axis.holds(4.0) && !axis.holds(4.1) && !axis.holds(f64::NAN));
    }

    #[test]
    fn any_numbers_give_a_few_finite_ticks() {
        for numbers in [
            vec![],
            vec![0.0],
            vec![5.0, 5.0],
            vec![-1e-300, 1e-300],
            vec![f64::MIN, f64::MAX],
            vec![f64::NAN, f64::INFINITY],
            vec![1e16, 1e16 + 2.0],
            vec![f64::MIN_POSITIVE, 5e-324],
        ] {
            let axis = Axis::of(numbers.iter().copied(), 6.0);
            for axis in [axis, axis.widened(), axis.whole(), axis.whole().widened()] {
                let ticks: Vec<f64> = axis.ticks().collect();
                assert!(ticks.len() <= 20, "{numbers:?}: {ticks:?}");
                assert!(ticks.iter().all(|&tick| axis.share(tick).is_finite()), "{numbers:?}: {axis:?}");
            }
        }
    }
}
