//! A part of a whole, as people write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A part of a whole, from nothing (0) to all of it (1).
///
/// It is written in percent or as a fraction below one. A plain `1` is refused: half of those who
/// write it mean one percent.
///
/// ```
/// use polytag::data::Share;
/// let share: Share = "1%".parse()?;
/// assert_eq!(share, "0.01".parse()?);
/// assert_eq!(share.of(1_500), 15);
/// assert!("1".parse::<Share>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

impl Share {
    /// The share as a fraction.
    pub fn fraction(self) -> f64 {
        self.0
    }

    /// So many of `whole`, to the nearest; but one at least of what is there, unless the share is 0.
    pub fn of(self, whole: u64) -> u64 {
        let part = (self.0 * whole as f64).round() as u64;
        let least = u64::from(self.0 > 0.0);
        part.max(least).min(whole)
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(fraction: f64) -> Result<Share, String> {
        if (0.0..=1.0).contains(&fraction) {
            return Ok(Share(fraction));
        }
        Err(format!("{fraction} is no share; give a number between 0 and 1"))
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let refused = || format!("{text:?} is no share; write 1% or 0.01, between 0% and 100%");
        if let Some(percent) = text.trim().strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| refused())?;
            return Share::try_from(percent / 100.0).map_err(|_| refused());
        }
        let fraction: f64 = text.trim().parse().map_err(|_| refused())?;
        if fraction >= 1.0 {
            return Err(format!("{text:?} is no share; write {fraction}% or, for everything, 100%"));
        }
        Share::try_from(fraction).map_err(|_| refused())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A hundredth times a hundred is not always one; six digits hide that and nothing else.
        let percent = format!("{:.6}", self.0 * 100.0);
        write!(f, "{}%", percent.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_people_write_them() {
        for (text, fraction) in [
            ("1%", 0.01),
            (" 5 % ", 0.05),
            ("0.01", 0.01),
            ("0", 0.0),
            ("100%", 1.0),
            ("0.5%", 0.005),
            ("1e-2", 0.01),
        ] {
            assert_eq!(text.parse::<Share>().unwrap().fraction(), fraction, "{text}");
        }
        for text in ["", "%", "1", "5", "-1%", "101%", "nan", "NaN%", "inf", "-0.1", "one"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert!("5".parse::<Share>().unwrap_err().contains("write 5%"));
    }

    #[test]
    fn a_share_of_something_is_something() {
        let share = |text: &str| text.parse::<Share>().unwrap();
        assert_eq!(share("1%").of(10), 1);
        assert_eq!(share("1%").of(0), 0);
        assert_eq!(share("0%").of(10), 0);
        assert_eq!(share("100%").of(u64::MAX), u64::MAX);
        assert_eq!(share("25%").of(10), 3);
    }

    #[test]
    fn shares_are_shown_in_percent_and_kept_as_fractions() {
        let shown =
            ["1%", "29%", "0.5%", "0%", "100%"].map(|text| text.parse::<Share>().unwrap().to_string());
        assert_eq!(shown, ["1%", "29%", "0.5%", "0%", "100%"]);
        let share: Share = serde_json::from_str("0.05").unwrap();
        assert_eq!(serde_json::to_string(&share).unwrap(), "0.05");
        assert!(serde_json::from_str::<Share>("5").is_err());
    }
}
