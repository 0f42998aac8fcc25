//! `--help`, `--version` and `polytag completions`.

use crate::support::Lab;

/// The commands that a help text lists under `heading`.
fn listed(help: &str, heading: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_command_shows_an_example() {
    let lab = Lab::new();
    let help = lab.run("--help").done();
    assert!(help.contains("Exit codes: 0 done, 1 a failure of ours, 2 something to mend"));
    let mut commands = listed(&help, "Commands:");
    assert!(commands.len() >= 10, "{commands:?}");
    for format in listed(&lab.run("import --help").done(), "Formats:") {
        commands.push(format!("import {format}"));
    }
    for action in listed(&lab.run("labels --help").done(), "Commands:") {
        commands.push(format!("labels model {action}"));
    }
    for action in listed(&lab.run("encoders --help").done(), "Commands:") {
        commands.push(format!("encoders {action}"));
    }
    for part in listed(&lab.run("bench --help").done(), "Commands:") {
        commands.push(format!("bench {part}"));
    }
    assert!(commands.len() >= 27, "{commands:?}");
    for command in commands {
        let help = lab.run(&format!("{command} --help")).done();
        let examples = help.split_once("Example").unwrap_or_else(|| panic!("{command} shows no example")).1;
        let name = command.split(' ').next().unwrap();
        assert!(examples.contains(&format!("polytag {name}")), "{command}: {examples}");
        assert!(!help.contains('\u{1b}'), "{command}");
    }
}

#[test]
fn shells_can_complete() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.run(&format!("completions {shell}")).done();
        for word in ["polytag", "evaluate", "keep-going", "eurlex57k"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    assert!(lab.run("completions tcsh").complaint().contains("tcsh"));
}

#[test]
fn the_version_is_told() {
    let told = Lab::new().run("--version").done();
    assert_eq!(told, concat!("polytag ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn nothing_and_nonsense_get_the_usage() {
    let lab = Lab::new();
    let nothing = lab.run("");
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("Usage: polytag"));
    let complaint = lab.run("evalute task").complaint();
    assert!(complaint.contains("'evalute'") && complaint.contains("'evaluate'"), "{complaint}");
}
