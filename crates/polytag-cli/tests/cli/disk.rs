//! No space, no permission, no patience: whatever happens, what is on the disk is whole.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{CACHE, DEV, Lab, Ran, TRAIN, signal, skipped, stderr_of, wait_for};

/// How to get a file system of our own: by right, or in a user namespace.
const NAMESPACES: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-r", "-m"]];

/// Runs a shell script in which `disk` is a file system of its own, of 64 KiB and with a model on it.
/// `None`, and a word to the reader, where the system does not let us.
fn on_a_small_disk(lab: &Lab, script: &str) -> Option<Ran> {
    fs::create_dir(lab.path("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none disk || exit 77\ncp -r model disk/model\npolytag() {{ '{}' \"$@\"; }}\n{script}",
        env!("CARGO_BIN_EXE_polytag")
    );
    for namespace in NAMESPACES {
        let mut command = Command::new(namespace[0]);
        command.args(&namespace[1..]).args(["sh", "-c", &script]).current_dir(lab.path(""));
        command.env(CACHE.0, CACHE.1);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare") => {
                return Some(Ran::of(output));
            }
            _ => {}
        }
    }
    skipped("no file system of our own can be mounted here");
    None
}

/// Documents without end, as far as a test is concerned.
fn many_documents(n: usize) -> String {
    let text = "the trade of green tea by rail and other goods ".repeat(10);
    (0..n).map(|n| format!("{{\"id\":\"{n}\",\"text\":\"{text}{n}\"}}\n")).collect()
}

#[test]
fn a_full_disk_is_told_and_nothing_is_left_on_it() {
    let lab = Lab::with_model();
    let words: String = (0..20_000).map(|n| format!(" word{n}")).collect();
    lab.write("task/train.jsonl", format!("{TRAIN}{{\"id\":\"9\",\"text\":\"{words}\"}}\n"));
    lab.write("docs.jsonl", many_documents(2000));
    for (line, place) in [
        ("fit task --out disk/new", "disk/"),
        ("fit task --out disk/model", "disk/"),
        ("split task disk/new --zero-shot 1", "disk/"),
        ("predict model --in docs.jsonl --out disk/tags.jsonl", "disk/"),
    ] {
        let _ = fs::remove_dir(lab.path("disk"));
        let script = format!(
            "polytag {line}; code=$?\nls -A disk >&2\ncmp -s disk/model/words.txt model/words.txt || exit 9\nexit $code"
        );
        let Some(ran) = on_a_small_disk(&lab, &script) else { return };
        let (said, left) = ran
            .stderr
            .split_once("error: ")
            .unwrap_or_else(|| panic!("{line}: {ran:#?}"))
            .1
            .split_once('\n')
            .unwrap();
        assert_eq!(ran.code, Some(2), "{line}: {ran:#?}");
        assert!(said.starts_with(place), "{line}: {said}");
        assert!(
            said.contains("No space left on device")
                && said.ends_with("free some space or choose another place"),
            "{said}"
        );
        assert_eq!(left, "model\n", "{line}");
    }
}

#[test]
fn a_folder_that_does_not_fit_goes_on_when_there_is_room() {
    let lab = Lab::with_model();
    for name in ["a", "b"] {
        // Ids that do not pack: some 200 KiB a file.
        let lines = (0..20_000_u64).map(|n| {
            let id = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{{\"id\":\"{name}{id:016x}\",\"text\":\"tea\"}}\n")
        });
        lab.write(&format!("docs/{name}.jsonl"), lines.collect::<String>());
    }
    let script = "polytag predict model --in docs --out disk/tags/; code=$?\necho; \
        mount -o remount,size=8m disk || exit 77\n\
        polytag predict model --in docs --out disk/tags/ >&2 || exit 9\n\
        cp -r disk/tags tags; exit $code";
    let Some(ran) = on_a_small_disk(&lab, script) else { return };
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    let expected = "No space left on device (os error 28); free some space or choose another place";
    assert!(ran.stderr.contains(expected), "{ran:#?}");
    lab.run("predict model --in docs --out whole").done();
    for name in ["a.parquet", "b.parquet"] {
        assert!(lab.bytes(&format!("tags/{name}")) == lab.bytes(&format!("whole/{name}")), "{name}");
    }
}

#[test]
fn labels_that_do_not_fit_on_the_disk_are_not_half_added() {
    let lab = Lab::with_model();
    let many: String =
        (0..2000).map(|n| format!("{{\"id\":\"new-{n}\",\"name\":\"a new label\"}}\n")).collect();
    lab.write("new.jsonl", many);
    let script =
        "polytag labels disk/model add new.jsonl; code=$?\npolytag labels disk/model list --json\nexit $code";
    let Some(ran) = on_a_small_disk(&lab, script) else { return };
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    let expected = "error: disk/model/labels.log: cannot write: No space left on device";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    assert_eq!(crate::support::json(&ran.stdout).as_array().unwrap().len(), 4);
}

#[test]
fn a_disk_that_cannot_be_written_is_told() {
    let lab = Lab::with_model();
    for line in [
        "fit task --out disk/new",
        "fit task --out disk/model",
        "split task disk/new --zero-shot 1",
        "predict model --in task/dev.jsonl --out disk/tags.jsonl",
        "predict model --in task/dev.jsonl --out disk/tags.parquet",
        "predict model --in task/dev.jsonl --out disk/tags/",
        "labels disk/model add --id x --name x",
        "evaluate disk/model task --json disk/report.json",
    ] {
        let _ = fs::remove_dir(lab.path("disk"));
        let script = format!(
            "mount -o remount,ro disk || exit 77\npolytag {line} --quiet; code=$?\nls -A disk >&2\nexit $code"
        );
        let Some(ran) = on_a_small_disk(&lab, &script) else { return };
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {ran:#?}");
        let (said, left) = ran.stderr.split_once("error: ").unwrap().1.split_once('\n').unwrap();
        assert!(said.starts_with("disk/"), "{line}: {said}");
        let remedy = "Read-only file system (os error 30); check its permissions or choose another place";
        assert!(said.ends_with(remedy), "{line}: {said}");
        assert_eq!(left, "model\n", "{line}");
    }
}

/// Starts a server on the model in `disk`; `$at` is where it answers.
const SERVED: &str = concat!(
    env!("CARGO_BIN_EXE_polytag"),
    " serve disk/model --port 0 2> log & \
    for i in $(seq 100); do grep -q serving log && break; sleep 0.1; done\n\
    at=http://$(sed -n 's/.*\\(127.0.0.1:[0-9]*\\).*/\\1/p' log)/v1/models/model\n\
    command -v curl > /dev/null || exit 77\n"
);

#[test]
fn a_server_on_a_full_disk_says_so_and_changes_nothing() {
    let lab = Lab::with_model();
    let many: Vec<String> = (0..900).map(|n| format!("{{\"name\":\"{n} {}\"}}", "a".repeat(900))).collect();
    lab.write("many.json", format!("{{\"labels\":[{}]}}", many.join(",")));
    let script = format!(
        "{SERVED}curl -s $at/labels -H content-type:application/json -d @many.json\necho\n\
         curl -s $at/labels?limit=1\necho\n\
         curl -s $at/labels -H content-type:application/json -d '{{\"name\":\"small\"}}'\nkill $!; wait"
    );
    let Some(ran) = on_a_small_disk(&lab, &script) else { return };
    let answers: Vec<serde_json::Value> = ran.stdout.lines().map(crate::support::json).collect();
    assert_eq!(answers[0]["error"]["code"], "disk", "{ran:#?}");
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("No space left on device"));
    assert_eq!(answers[1]["total"], 4);
    assert_eq!(answers[2]["labels"][0]["id"], "small");
}

#[test]
fn a_server_on_a_disk_that_cannot_be_written_answers_and_takes_no_label() {
    let lab = Lab::with_model();
    let script = format!(
        "mount -o remount,ro disk || exit 77\n{SERVED}\
         curl -s $at/labels -H content-type:application/json -d '{{\"name\":\"new\"}}'\necho\n\
         curl -s $at/tag -H content-type:application/json -d '{{\"texts\":[\"tea\"]}}'\nkill $!; wait"
    );
    let Some(ran) = on_a_small_disk(&lab, &script) else { return };
    let answers: Vec<serde_json::Value> = ran.stdout.lines().map(crate::support::json).collect();
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("Read-only file system"), "{ran:#?}");
    assert_eq!(answers[1]["results"][0]["labels"][0]["id"], "tea");
}

#[test]
fn a_model_on_such_a_disk_can_still_be_asked() {
    let lab = Lab::with_model();
    let script = "mount -o remount,ro disk || exit 77\npolytag predict disk/model --in task/dev.jsonl";
    let Some(ran) = on_a_small_disk(&lab, script) else { return };
    assert_eq!(ran.done().lines().count(), 2);
}

/// Whether the descriptors of a program have names here; if not, a word to the reader.
fn descriptors_have_names() -> bool {
    let have = Path::new("/dev/stdout").exists() && Path::new("/proc/self/fd/1").exists();
    if !have {
        skipped("no /dev/stdout or /proc here");
    }
    have
}

#[test]
fn a_log_behind_standard_output_keeps_what_is_in_it() {
    if !descriptors_have_names() {
        return;
    }
    let lab = Lab::with_model();
    let point = |step: u64| {
        format!(
            "{{\"step\":{step},\"loss\":1,\"rate\":1,\"gradient_norm\":1,\"measures\":{{\"nDCG@5\":{step}}}}}\n"
        )
    };
    lab.write("curve.jsonl", point(1) + &point(2));
    std::os::unix::fs::symlink("/dev/stdout", lab.path("link")).unwrap();
    for line in [
        "predict model --in task/dev.jsonl --out",
        "predict model --in task/dev.jsonl --format parquet --out",
        "evaluate model task --json",
        "evaluate model task --markdown",
        "inspect task --html",
        "explain model --text honey --html",
        "curves curve.jsonl --out",
    ] {
        let printed = lab.run(&format!("{line} alone")).done();
        let expected = [b"earlier\n", &*lab.bytes("alone"), printed.as_bytes(), b"later\n"].concat();
        for place in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"] {
            // Not opened to append: where a writer stands is told by the position that all of them share.
            let mut log = fs::File::create(lab.path("log")).unwrap();
            log.write_all(b"earlier\n").unwrap();
            let line = format!("{line} {place}");
            let mut command = lab.command(line.split(' '));
            Ran::of(command.stdout(log.try_clone().unwrap()).output().unwrap()).done();
            log.write_all(b"later\n").unwrap();
            assert!(lab.bytes("log") == expected, "{line}: {:?}", String::from_utf8_lossy(&lab.bytes("log")));
        }
    }
    assert_eq!(lab.names(""), ["alone", "curve.jsonl", "link", "log", "model", "task"]);
}

#[test]
fn a_log_behind_any_descriptor_of_a_shell_keeps_what_is_in_it() {
    if !descriptors_have_names() {
        return;
    }
    let lab = Lab::with_model();
    let expected = lab.run("predict model --in task/dev.jsonl").done();
    for (redirected, place) in [
        (">> log", "/dev/stdout"),
        ("2>> log", "/dev/stderr"),
        ("3>> log", "/dev/fd/3"),
        ("5> log", "/dev/fd/5"),
    ] {
        let script = format!(
            "echo earlier > log\n'{}' predict model --in task/dev.jsonl --quiet --out {place} {redirected}; code=$?\n\
             echo later >> log\nexit $code",
            env!("CARGO_BIN_EXE_polytag")
        );
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &script]).current_dir(lab.path("")).env(CACHE.0, CACHE.1);
        Ran::of(shell.stdin(Stdio::null()).output().unwrap()).done();
        let earlier = if redirected.contains(">>") { "earlier\n" } else { "" };
        assert_eq!(lab.read("log"), format!("{earlier}{expected}later\n"), "{place} {redirected}");
    }
    assert_eq!(lab.names(""), ["log", "model", "task"]);
}

#[test]
fn what_is_read_is_not_written_to_through_a_descriptor() {
    if !descriptors_have_names() {
        return;
    }
    let lab = Lab::with_model();
    lab.write("docs.jsonl", DEV);
    let docs = || fs::OpenOptions::new().append(true).open(lab.path("docs.jsonl")).unwrap();
    let mut command = lab.command("predict model --in docs.jsonl --out /dev/stdout".split(' '));
    let complaint = Ran::of(command.stdout(docs()).output().unwrap()).complaint();
    assert_eq!(complaint, "/dev/stdout: is both input and output; write to another place");
    let mut command = lab.command("predict model --in task/dev.jsonl --out /dev/stdin".split(' '));
    let input = fs::File::open(lab.path("docs.jsonl")).unwrap();
    let complaint = Ran::of(command.stdin(input).output().unwrap()).complaint();
    assert!(complaint.starts_with("/dev/stdin: cannot write: permission denied; check"), "{complaint}");
    assert_eq!(lab.read("docs.jsonl"), DEV);
}

#[test]
fn an_interrupted_fit_leaves_the_old_model_and_nothing_else() {
    let lab = Lab::with_model();
    lab.write("task/train.jsonl", many_documents(60_000));
    let before = lab.tree("model");
    for out in ["model", "new"] {
        let names = lab.names("");
        let mut child = lab.command(format!("fit task --out {out}").split(' ')).spawn().unwrap();
        wait_for("the fit to begin", || lab.names("").len() > names.len());
        signal(&child, "INT");
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(stderr_of(&mut child).ends_with("error: stopped before the end\n"));
        assert_eq!(lab.names(""), names);
        assert!(lab.tree("model") == before);
    }
}

#[test]
fn a_predict_that_waits_for_input_can_be_interrupted() {
    for name in ["INT", "TERM"] {
        let lab = Lab::with_model();
        lab.write("tags.jsonl", "an older answer");
        let mut child = lab.start("predict model --out tags.jsonl");
        child.stdin.as_mut().unwrap().write_all(b"{\"id\":\"1\",\"text\":\"tea\"}\n").unwrap();
        wait_for("the answer to begin", || lab.names("").iter().any(|name| name.starts_with(".partial")));
        signal(&child, name);
        // Its input is still open: it must not wait for the end of it.
        wait_for("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(lab.names(""), ["model", "tags.jsonl", "task"]);
        assert_eq!(lab.read("tags.jsonl"), "an older answer");
    }
}

#[test]
fn a_fit_that_is_killed_at_any_moment_leaves_a_model_that_loads() {
    let lab = Lab::with_model();
    lab.write("task/train.jsonl", many_documents(300));
    let started = Instant::now();
    lab.run("fit task --set ngrams=2 --out model").done();
    let whole = started.elapsed();
    let rounds = 30;
    for round in 0..rounds {
        let line = format!("fit task --set ngrams={} --out model --threads 1", 1 + round % 3);
        let mut child = lab.command(line.split(' ')).spawn().unwrap();
        thread::sleep(whole.mul_f64(1.2) * round as u32 / rounds as u32 + Duration::from_micros(300));
        child.kill().unwrap();
        child.wait().unwrap();
        let told = lab.run("predict model --in task/dev.jsonl --k 1").done();
        assert!(told.contains("\"rail\""), "round {round}: {told}");
        // Beside it lies at most what the killed run had begun.
        let others = lab.names("").into_iter().filter(|name| name != "model" && name != "task");
        for name in others {
            assert!(name.starts_with(".partial-"), "round {round}: {name}");
            fs::remove_dir_all(lab.path(&name)).unwrap();
        }
    }
}
