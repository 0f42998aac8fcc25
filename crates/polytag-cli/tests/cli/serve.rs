//! `polytag serve` as a process: started, asked, killed and started again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Lab, skipped};

/// A server that is gone after the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(lab: &Lab, options: &str) -> Server {
        let mut child = lab
            .command(format!("serve {options} --port 0").split_whitespace())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line =
            lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("serving"))).unwrap().unwrap();
        // The rest is read on, so that nothing it says is held up.
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.split("127.0.0.1:").nth(1).unwrap();
        let port = address.split('/').next().unwrap().parse().unwrap();
        Server { child, port }
    }

    /// Sends a request; the status and the body of the answer, or nothing where the server broke off.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    fn add(&self, id: &str) -> Option<u16> {
        self.ask("POST", "/v1/models/model/labels", &json!({"id": id, "name": format!("name {id}")}))
            .map(|(status, _)| status)
    }

    fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn listed(lab: &Lab) -> Vec<String> {
    let listed = crate::support::json(&lab.run("labels model list --json").done());
    listed.as_array().unwrap().iter().map(|label| label["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_served_model_is_asked_and_changed_and_ends_when_it_is_told() {
    let lab = Lab::with_model();
    let mut server = Server::start(&lab, "model --task task");
    let bees = json!({"texts": ["honey and bees"], "k": 1});
    let (status, answer) = server.ask("POST", "/v1/models/model/tag", &bees).unwrap();
    assert_eq!(
        (status, crate::support::json(&answer)["results"][0]["labels"][0]["id"].as_str()),
        (200, Some("bees"))
    );
    assert_eq!(server.add("new"), Some(201));
    // Nobody else may change or replace it meanwhile.
    for line in ["serve model --port 0", "labels model add --id x --name x"] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains("another program"), "{line}: {complaint}");
    }
    server.signal("-TERM");
    let asked = Instant::now();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(30));
    assert!(listed(&lab).contains(&"new".to_owned()));
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    let lab = Lab::with_model();
    let mut acknowledged = vec!["tea".to_owned()];
    for round in 0..12_u32 {
        let server = Server::start(&lab, "model");
        let adding = std::thread::scope(|scope| {
            let adding = scope.spawn(|| {
                let ids = (0..).map(|number| format!("{round}-{number}"));
                ids.take_while(|id| server.add(id) == Some(201)).collect::<Vec<_>>()
            });
            std::thread::sleep(Duration::from_millis(u64::from(5 + 17 * round % 60)));
            server.signal("-KILL");
            adding.join().unwrap()
        });
        acknowledged.extend(adding);
        drop(server);
        let there = listed(&lab);
        let lost: Vec<&String> = acknowledged.iter().filter(|id| !there.contains(id)).collect();
        assert!(lost.is_empty(), "{lost:?} were acknowledged and are gone");
    }
    assert!(acknowledged.len() > 12, "{} were acknowledged", acknowledged.len());
}

#[test]
fn what_cannot_be_served_is_told() {
    let lab = Lab::with_model();
    for (line, words) in [
        ("serve none", "none"),
        ("serve task", "not a model folder"),
        ("serve model --listen 0.0.0.0:0", "give keys"),
        ("serve model --listen here", "no address"),
        ("serve model model --port 0", "two models"),
        ("serve model --port 0 --set max_kk=1", "max_kk"),
        ("serve model --config none.toml", "none.toml: cannot read"),
        ("serve model --port 0 --task none", "none"),
        ("serve model --port 0 --tls-certificate a.pem --tls-key b.pem", "a.pem"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(words), "{line}: {complaint}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let complaint = lab.refuses(&format!("serve model --port {port}"));
    assert!(complaint.contains("cannot listen on 127.0.0.1") && complaint.contains("--port"), "{complaint}");
    lab.write("bad.toml", "listen = 7\n");
    assert!(lab.refuses("serve model --config bad.toml").contains("invalid type"));
    let log = lab.path("model/labels.log");
    std::fs::write(&log, "00000000 []\n00000000 []\n").unwrap();
    assert!(lab.refuses("serve model --port 0").contains("labels.log: damaged: line 1"));
}

#[test]
fn https_is_spoken_with_a_certificate() {
    let lab = Lab::with_model();
    let run = |program: &str, arguments: &str| {
        let mut command = std::process::Command::new(program);
        command.current_dir(lab.path("")).args(arguments.split_whitespace()).output()
    };
    let made = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=localhost";
    if !run("openssl", made).is_ok_and(|made| made.status.success()) || run("curl", "--version").is_err() {
        skipped("openssl and curl are not both installed");
        return;
    }
    let server = Server::start(&lab, "model --tls-certificate cert.pem --tls-key key.pem");
    let address = format!("https://localhost:{}/readyz", server.port);
    let asked = run("curl", &format!("-s --cacert cert.pem {address}")).unwrap();
    assert_eq!(String::from_utf8(asked.stdout).unwrap(), "ready\n");
    let plain = run("curl", &format!("-s {}", address.replace("https", "http"))).unwrap();
    assert!(plain.stdout.is_empty());
}

#[test]
fn a_key_is_made_whose_hash_the_server_takes() {
    let lab = Lab::with_model();
    let made = lab.run("serve-key --name shop --scope label-write").done();
    let key = made.lines().map(str::trim).find(|line| line.len() == 64).unwrap();
    let settings = &made[made.find("[[keys]]").unwrap()..];
    assert!(!settings.contains(key) && settings.contains("scope = \"label-write\""));
    lab.write("serve.toml", settings);
    let server = Server::start(&lab, "model --config serve.toml");
    assert_eq!(server.ask("GET", "/v1/models", &Value::Null).unwrap().0, 401);
    assert_eq!(server.ask("GET", "/healthz", &Value::Null).unwrap().0, 200);
}
