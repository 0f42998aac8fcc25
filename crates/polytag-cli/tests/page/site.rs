//! A server with a demo model, and a browser that looks at its page.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::Browser;
use crate::process::{Process, Says};

/// A document of the demo's task that its model has not seen.
pub(crate) const TITLE: &str = "Distributed Hypertext Client, Gopher protocol";
pub(crate) const TEXT: &str = "\
This package contains the client for the distributed global directory \
and hypertext system known as gopher. This is a text-based (ncurses) \
client from the University of Minnesota. It also supports the gopher+ \
protocol, as well as links to ftp, http, and other external viewers.";

/// A folder with a task and a model, served; a browser that shows the page.
pub(crate) struct Site {
    /// Ended first, the server next, the folder last.
    pub(crate) browser: Browser,
    _server: Process,
    address: String,
    dir: TempDir,
}

impl Site {
    /// A site of its own for a test; none, and a word about it, where there is no browser.
    pub(crate) fn open() -> Option<Site> {
        let browser = match Browser::start() {
            Ok(browser) => browser,
            Err(missing) => {
                skipped(missing);
                return None;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let polytag = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_polytag"));
            // What the user has pulled does not show here.
            command
                .current_dir(dir.path())
                .env("POLYTAG_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
            command
        };
        let made = polytag().args(["demo", "--dir", "demo", "-q"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut serve = polytag();
        serve.args(["serve", "demo/model", "--task", "demo/task", "--port", "0"]);
        let (server, rest) = Process::start(serve, Says::Errors, "serving model on ");
        let address = rest.split_whitespace().next().unwrap().to_owned();
        let site = Site { browser, _server: server, address, dir };
        // Nothing may move while it is looked at.
        site.prefer("light");
        Some(site)
    }

    /// A file in the site's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Shows a view of the page, and waits until it is there.
    pub(crate) fn view(&self, name: &str) -> &Browser {
        self.browser.goto(&format!("{}#/{name}", self.address));
        self.browser.wait(&format!("section.view[data-view={name}]:not([hidden])"));
        &self.browser
    }

    /// Shows the labels of the text.
    pub(crate) fn tag(&self) -> &Browser {
        let browser = self.view("tag");
        browser.type_into("[data-test=title]", TITLE);
        browser.type_into("[data-test=text]", TEXT);
        browser.click("[data-test=tag]");
        browser.wait("[data-test=result]");
        browser
    }

    /// Takes a system in light or dark colours, without motion.
    pub(crate) fn prefer(&self, colours: &str) {
        let features = json!([
            {"name": "prefers-color-scheme", "value": colours},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.browser.chromium("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// Leaves a picture of the page for people.
    pub(crate) fn picture(&self, name: &str) {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("page-screenshots");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("{name}.png")), self.browser.screenshot()).unwrap();
    }

    /// The lines of a file in the site's folder, each as JSON.
    pub(crate) fn json_lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The end of every test: the browser had nothing to complain of, a broken policy among that.
    pub(crate) fn close(self) {
        assert_eq!(self.browser.complaints(), Vec::<String>::new());
    }
}

/// Says that a test was skipped, straight to standard error: what a passing test prints is otherwise
/// not shown.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
