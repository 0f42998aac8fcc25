//! The architecture as a test: imports point back along the data's way, files stay readable, and
//! what ARCHITECTURE.md links to exists.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The library's modules in the order of lib.rs, which is the order data flows.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string(root().join("crates/polytag/src/lib.rs")).unwrap();
    let names = lib.lines().filter_map(|line| line.strip_prefix("pub mod "));
    names.map(|rest| rest.split(';').next().unwrap().to_owned()).collect()
}

/// What a source file says outside its tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let before_tests = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_module_uses_only_those_before_it() {
    let order: BTreeMap<String, usize> = modules().into_iter().enumerate().map(|(i, m)| (m, i)).collect();
    assert!(order.len() > 8, "lib.rs lists the modules one a line");
    let source = root().join("crates/polytag/src");
    for path in rust_files(&source) {
        let name = path.strip_prefix(&source).unwrap().components().next().unwrap();
        let name = name.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        let Some(&own) = order.get(&name) else { continue };
        for used in code(&path).split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if let Some(&other) = order.get(&used) {
                assert!(other <= own, "{}: {name} must not use {used}, which comes after it", path.display());
            }
        }
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for path in rust_files(&root().join("crates")) {
        let lines = code(&path).lines().count();
        assert!(lines <= 500, "{}: {lines} lines without tests; split it", path.display());
    }
}

#[test]
fn every_folder_has_a_heading_in_the_architecture() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for module in modules() {
        let folder = root().join("crates/polytag/src").join(&module);
        if folder.is_dir() {
            assert!(
                text.contains(&format!("\n### `{module}/`")),
                "ARCHITECTURE.md has no heading for {module}/"
            );
        }
    }
}

#[test]
fn links_lead_somewhere() {
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let path = root().join(document);
        let text = fs::read_to_string(&path).unwrap();
        let mut links = 0;
        for target in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            links += 1;
            assert!(root().join(file).exists(), "{document} links to {target}, which is not there");
        }
        assert!(links > 0 || document == "CHANGELOG.md", "{document} links to nothing");
    }
}
