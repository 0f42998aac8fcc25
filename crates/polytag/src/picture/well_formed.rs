//! A check that drawings and pages are well-formed XML, for tests.

/// Panics unless `text` is one element, rightly nested, of escaped text and quoted attributes, after an
/// optional `<!doctype …>`.
pub(super) fn check(text: &str) {
    let illegal = |letter: char| letter.is_control() && letter != '\n';
    assert_eq!(text.find(illegal), None, "a control character");
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start]);
        assert!(!open.is_empty() || rest[..start].trim().is_empty(), "text outside: {}", &rest[..start]);
        let end = start + rest[start..].find('>').unwrap_or_else(|| panic!("a tag without end: {rest}"));
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else if !tag.starts_with("!doctype ") {
            roots += usize::from(open.is_empty());
            let name = tag.split([' ', '/']).next().unwrap();
            assert!(
                name.chars().all(char::is_alphanumeric) && !name.is_empty(),
                "a name of an element: {tag}"
            );
            check_attributes(tag[name.len()..].trim_end_matches('/'));
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "all closed, nothing after: {open:?} {rest}");
    assert_eq!(roots, 1, "one element holds everything");
}

fn check_attributes(mut rest: &str) {
    let mut names = Vec::new();
    while !rest.trim().is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("an attribute: {rest}"));
        assert!(name.starts_with(' '), "a space before {name}");
        let name = name.trim();
        assert!(name.chars().all(|letter| letter.is_alphanumeric() || letter == '-'), "a name: {name}");
        assert!(!names.contains(&name), "{name} twice");
        names.push(name);
        let (value, after) = value.split_once('"').unwrap_or_else(|| panic!("a quoted value: {rest}"));
        assert!(!value.contains('<'), "{value}");
        check_text(value);
        rest = after;
    }
}

fn check_text(text: &str) {
    assert!(!text.contains('>'), "unescaped: {text}");
    for reference in text.split('&').skip(1) {
        let name = reference.split_once(';').unwrap_or_else(|| panic!("a bare &: {text}")).0;
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "no entity: {name}");
    }
}

#[test]
fn faults_are_found() {
    check("<!doctype html>\n<a b=\"c\"><d/>&amp;</a>\n");
    for fault in [
        "<a>",
        "<a></b>",
        "<a/><a/>",
        "<a>&</a>",
        "<a b=c/>",
        "<a b=\"1\" b=\"2\"/>",
        "x<a/>",
        "<a>\u{0}</a>",
        "",
    ] {
        assert!(std::panic::catch_unwind(|| check(fault)).is_err(), "{fault}");
    }
}
