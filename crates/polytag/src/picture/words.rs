//! Texts and numbers as drawings and pages hold them: escaped, with fixed decimals, cut to fit.

/// About how wide a letter is, on the generous side: fonts are the reader's.
const LETTER: f64 = 7.0;

/// Text made safe to stand in an element or an attribute, of XML and HTML alike. What neither can hold
/// becomes the replacement character, and a line's end a space.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' | '\r' => safe.push(' '),
            '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            control if control.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            letter => safe.push(letter),
        }
    }
    safe
}

/// A count with its thousands apart.
pub(super) fn count(n: usize) -> String {
    number(n as f64, 0)
}

/// A number with fixed decimals and its thousands apart; in scientific notation where that would be long.
pub(super) fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value.abs() >= 1e15 || decimals > 9 {
        return format!("{value:.3e}").replace('-', "−");
    }
    let digits = format!("{:.decimals$}", value.abs());
    let negative = value < 0.0 && digits.bytes().any(|digit| digit.is_ascii_digit() && digit != b'0');
    let whole = digits.split('.').next().map_or(0, str::len);
    let mut text = if negative { "−".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Text cut into lines that fit a width, between words.
pub(super) fn wrap(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + LETTER <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The beginning of a text, if all of it is too long for its place.
pub(super) fn shorten(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let letters = ((width / LETTER) as usize).saturating_sub(1);
    text.chars().take(letters).chain(['…']).collect()
}

/// About how wide a text is drawn. Letters of East Asian scripts are twice as wide as others.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|letter| if letter >= '\u{1100}' { 2.0 * LETTER } else { LETTER }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
        assert_eq!(
            escape("a\u{0}b\u{1b}c\td\r\n\u{ffff}\u{85}é😀"),
            "a\u{fffd}b\u{fffd}c d  \u{fffd}\u{fffd}é😀"
        );
    }

    #[test]
    fn numbers_have_fixed_decimals() {
        for (value, decimals, text) in [
            (0.0, 0, "0"),
            (-0.001, 2, "0.00"),
            (-1234.5, 1, "−1,234.5"),
            (999.0, 0, "999"),
            (1e6, 0, "1,000,000"),
            (1e20, 0, "1.000e20"),
            (2.5e-12, 13, "2.500e−12"),
            (f64::NAN, 1, "–"),
        ] {
            assert_eq!(number(value, decimals), text);
        }
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7.0 * LETTER), ["one two", "three"]);
        assert_eq!(wrap(" ", 100.0), Vec::<String>::new());
        assert_eq!(shorten("abcdefgh", 5.0 * LETTER), "abcd…");
        assert_eq!(shorten("abcde", 5.0 * LETTER), "abcde");
    }
}
