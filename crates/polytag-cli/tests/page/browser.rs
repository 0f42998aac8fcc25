//! Chromium without a window, driven by the WebDriver protocol over plain HTTP.
//!
//! Whatever is asked of an element is tried until it works or patience ends: a page changes while it is looked at.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::http::Request;

use crate::process::{PATIENCE, Process, Says};

const PAUSE: Duration = Duration::from_millis(20);
/// The field of an answer that holds an element, by the standard.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
const CHROMIUMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const SWITCHES: [&str; 6] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
    "--lang=en-US",
];

/// Keys without a letter, as the standard writes them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const CONTROL: &str = "\u{e009}";
pub(crate) const ESCAPE: &str = "\u{e00c}";

/// A browser with one tab.
pub(crate) struct Browser {
    agent: ureq::Agent,
    /// The address of the session.
    session: String,
    /// Held for its end.
    _driver: Process,
    /// What Chromium leaves behind is gone with it.
    _dir: TempDir,
}

impl Browser {
    /// A browser, or what is missing for one.
    pub(crate) fn start() -> Result<Browser, &'static str> {
        let driver = installed("chromedriver").ok_or("no chromedriver here")?;
        let chromium = CHROMIUMS.into_iter().find_map(installed).ok_or("no chromium here")?;
        let mut command = Command::new(driver);
        let dir = tempfile::tempdir().unwrap();
        command.arg("--port=0").env("TMPDIR", dir.path());
        let (process, port) = Process::start(command, Says::Output, "started successfully on port ");
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(2 * PATIENCE))
            .build()
            .into();
        let root = format!("http://127.0.0.1:{}/session", port.trim_end_matches('.'));
        let wishes = json!({
            "goog:chromeOptions": {"binary": chromium, "args": SWITCHES},
            "goog:loggingPrefs": {"browser": "ALL"},
            // A dialog fails whatever is asked next.
            "unhandledPromptBehavior": "dismiss and notify",
        });
        let begun = send(&agent, "POST", &root, &json!({"capabilities": {"alwaysMatch": wishes}})).unwrap();
        let session = format!("{root}/{}", begun["sessionId"].as_str().unwrap());
        Ok(Browser { agent, session, _driver: process, _dir: dir })
    }

    fn ask(&self, path: &str, body: &Value) -> Result<Value, String> {
        send(&self.agent, "POST", &format!("{}/{path}", self.session), body)
    }

    fn find(&self, css: &str) -> Result<String, String> {
        let found = self.ask("element", &json!({"using": "css selector", "value": css}))?;
        Ok(found[ELEMENT].as_str().unwrap().to_owned())
    }

    /// Does something with the first element of a selector, as soon as that can be done.
    fn with<T>(&self, css: &str, mut act: impl FnMut(&str) -> Result<T, String>) -> T {
        let started = Instant::now();
        loop {
            match self.find(css).and_then(|element| act(&element)) {
                Ok(done) => return done,
                Err(error) => assert!(started.elapsed() < PATIENCE, "{css}: {error}\n{}", self.state()),
            }
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn goto(&self, address: &str) {
        self.ask("url", &json!({"url": address})).unwrap();
    }

    /// Waits until there is an element.
    pub(crate) fn wait(&self, css: &str) {
        self.with(css, |_| Ok(()));
    }

    /// Waits until an expression of JavaScript holds.
    pub(crate) fn until(&self, expression: &str) {
        let started = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(started.elapsed() < PATIENCE, "waited in vain for {expression}\n{}", self.state());
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn click(&self, css: &str) {
        self.with(css, |element| self.ask(&format!("element/{element}/click"), &json!({})));
    }

    /// Types into a field, or gives a file field the path of a file.
    pub(crate) fn type_into(&self, css: &str, text: &str) {
        self.with(css, |element| self.ask(&format!("element/{element}/value"), &json!({"text": text})));
    }

    /// Types into a field instead of what is there.
    pub(crate) fn replace(&self, css: &str, text: &str) {
        self.with(css, |element| self.ask(&format!("element/{element}/clear"), &json!({})));
        self.type_into(css, text);
    }

    /// Presses keys where the focus is: all down in order, then all up again.
    pub(crate) fn press(&self, keys: &[&str]) {
        let event = |kind: &str, key: &str| json!({"type": kind, "value": key});
        let down = keys.iter().map(|key| event("keyDown", key));
        let up = keys.iter().rev().map(|key| event("keyUp", key));
        let actions: Vec<Value> = down.chain(up).collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.ask("actions", &keyboard).unwrap();
    }

    /// Types where the focus is.
    pub(crate) fn type_here(&self, text: &str) {
        for character in text.chars() {
            self.press(&[character.encode_utf8(&mut [0; 4])]);
        }
    }

    /// The text of an element, as it is shown.
    pub(crate) fn text(&self, css: &str) -> String {
        let path = |element: &str| format!("{}/element/{element}/text", self.session);
        let text = self.with(css, |element| send(&self.agent, "GET", &path(element), &Value::Null));
        text.as_str().unwrap().to_owned()
    }

    pub(crate) fn attribute(&self, css: &str, name: &str) -> Option<String> {
        let path = |element: &str| format!("{}/element/{element}/attribute/{name}", self.session);
        let value = self.with(css, |element| send(&self.agent, "GET", &path(element), &Value::Null));
        value.as_str().map(str::to_owned)
    }

    /// How many elements there are.
    pub(crate) fn count(&self, css: &str) -> u64 {
        self.script("return document.querySelectorAll(arguments[0]).length", &[json!(css)]).as_u64().unwrap()
    }

    /// Runs JavaScript in the page.
    pub(crate) fn script(&self, script: &str, arguments: &[Value]) -> Value {
        self.ask("execute/sync", &json!({"script": script, "args": arguments})).unwrap()
    }

    /// The value of an expression of JavaScript.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.script(&format!("return {expression}"), &[])
    }

    /// Asks Chromium itself, by its own protocol.
    pub(crate) fn chromium(&self, command: &str, parameters: &Value) -> Value {
        self.ask("goog/cdp/execute", &json!({"cmd": command, "params": parameters})).unwrap()
    }

    /// Lays the page out as a window of this size would.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.chromium("Emulation.setDeviceMetricsOverride", &size);
    }

    /// A picture of the whole page, as PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let hide_bars = |hidden| self.chromium("Emulation.setScrollbarsHidden", &json!({"hidden": hidden}));
        hide_bars(true);
        let size = self.value("[innerWidth, document.documentElement.scrollHeight]");
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let whole = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.chromium("Page.captureScreenshot", &whole);
        hide_bars(false);
        from_base64(taken["data"].as_str().unwrap())
    }

    /// What the browser complained of since this was last asked.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let entries = self.ask("se/log", &json!({"type": "browser"})).unwrap();
        let entries = entries.as_array().unwrap().iter();
        let complaints =
            entries.filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        complaints.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// What to look at when a test fails.
    fn state(&self) -> String {
        let shown =
            self.ask("execute/sync", &json!({"script": "return document.body.innerText", "args": []}));
        let log = self.ask("se/log", &json!({"type": "browser"}));
        format!("the page shows: {shown:?}\nthe log has: {log:?}")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends Chromium with the session, not when it is killed.
        drop(send(&self.agent, "DELETE", &self.session, &Value::Null));
    }
}

/// Sends a request to the driver; gives the value of its answer, or what it refused.
fn send(agent: &ureq::Agent, method: &str, address: &str, body: &Value) -> Result<Value, String> {
    let request = Request::builder().method(method).uri(address).header("content-type", "application/json");
    let answer = match body {
        Value::Null => agent.run(request.body(()).unwrap()),
        body => agent.run(request.body(body.to_string()).unwrap()),
    };
    let mut answer = answer.map_err(|error| error.to_string())?;
    let has_worked = answer.status().is_success();
    // Pictures are large.
    let text = answer.body_mut().with_config().limit(1 << 28).read_to_string();
    let mut said: Value = serde_json::from_str(&text.map_err(|error| error.to_string())?).unwrap();
    let value = said["value"].take();
    if has_worked { Ok(value) } else { Err(format!("{}: {}", value["error"], value["message"])) }
}

/// Where a program lies.
fn installed(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes();
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0u32);
    for digit in digits {
        let value = DIGITS.iter().position(|&known| known == digit).unwrap();
        held = (held << 6 | u32::try_from(value).unwrap()) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).unwrap());
        }
    }
    bytes
}
