//! A folder to work in, and the program in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use polytag::columns::{Form, JsonRows, Table, TableWriter};
use serde_json::Value;
use tempfile::TempDir;

/// Four labels, two of which no train document carries.
pub(crate) const LABELS: &str = r#"{"id":"tea","name":"tea trade","aliases":["green tea"]}
{"id":"rail","name":"rail transport"}
{"id":"bees","name":"bee keeping","description":"Hives and honey."}
{"id":"glue","name":"adhesive"}
"#;
pub(crate) const TRAIN: &str = r#"{"id":"1","title":"Tea","text":"rules for the trade of green tea","labels":["tea"]}
{"id":"2","text":"trains on the rail network carry goods","labels":["rail"]}
{"id":"3","text":"tea goes by rail","labels":["tea","rail"]}
"#;
pub(crate) const DEV: &str = r#"{"id":"4","text":"keeping bees and their honey","labels":["bees"]}
{"id":"5","text":"transport by rail","labels":["rail"]}
"#;

/// A cache that nobody has pulled an encoder into: what a test sees is not for the user's own cache to say.
pub(crate) const CACHE: (&str, &str) = ("POLYTAG_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));

/// The model of the small task, file by file.
static MODEL: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let lab = Lab::with_task();
    lab.run("fit task --out model").done();
    lab.names("model").into_iter().map(|name| (name.clone(), lab.bytes(&format!("model/{name}")))).collect()
});

/// A folder that is gone after the test.
pub(crate) struct Lab {
    dir: TempDir,
}

impl Lab {
    /// An empty folder.
    pub(crate) fn new() -> Lab {
        Lab { dir: tempfile::tempdir().unwrap() }
    }

    /// A folder with a small task in `task`.
    pub(crate) fn with_task() -> Lab {
        let lab = Lab::new();
        lab.write("task/labels.jsonl", LABELS);
        lab.write("task/train.jsonl", TRAIN);
        lab.write("task/dev.jsonl", DEV);
        lab
    }

    /// A folder with that task, and a model fitted on it in `model`.
    pub(crate) fn with_model() -> Lab {
        let lab = Lab::with_task();
        for (name, bytes) in MODEL.iter() {
            lab.write(&format!("model/{name}"), bytes);
        }
        lab
    }

    /// A folder with the bundled sample in `sample`.
    pub(crate) fn with_sample() -> Lab {
        let lab = Lab::new();
        let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/debtags-sample");
        for name in ["labels.jsonl", "train.jsonl", "dev.jsonl"] {
            lab.write(&format!("sample/{name}"), fs::read(bundled.join(name)).unwrap());
        }
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file, and the folders it lies in.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    /// The lines of a file, each as JSON.
    pub(crate) fn json_lines(&self, name: &str) -> Vec<Value> {
        json_lines(&self.read(name))
    }

    /// What lies in a folder, in order.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Each file below a folder, with its content; a folder is there with a slash.
    pub(crate) fn tree(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let mut tree = BTreeMap::new();
        for name in self.names(folder) {
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if self.path(&name).is_dir() {
                tree.append(&mut self.tree(&name));
                tree.insert(name + "/", Vec::new());
            } else {
                tree.insert(name.clone(), self.bytes(&name));
            }
        }
        tree
    }

    /// Writes a table, as Parquet or Arrow by its name, with row groups of so many rows.
    pub(crate) fn write_table(&self, name: &str, columns: Vec<(&str, ArrayRef)>, group: usize) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let form = Form::from_name(&path).unwrap();
        let mut writer =
            TableWriter::new(fs::File::create(&path).unwrap(), &path, form, batch.schema()).unwrap();
        for start in (0..batch.num_rows()).step_by(group) {
            writer.write(&batch.slice(start, group.min(batch.num_rows() - start))).unwrap();
            writer.end_group().unwrap();
        }
        writer.finish().unwrap();
    }

    /// The rows of a table, each as JSON.
    pub(crate) fn table(&self, name: &str) -> Vec<Value> {
        let table = Table::open(&self.path(name)).unwrap();
        let all: Vec<usize> = (0..table.schema().fields().len()).collect();
        let mut rows = Vec::new();
        for batch in table.batches(&all, 0).unwrap() {
            let batch = batch.unwrap();
            let lines = JsonRows::of(&batch).unwrap();
            for row in 0..batch.num_rows() {
                let mut line = Vec::new();
                lines.write(row, &mut line);
                rows.push(serde_json::from_slice(&line).unwrap());
            }
        }
        rows
    }

    /// The program with these arguments, in this folder, its output caught.
    pub(crate) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polytag"));
        command.current_dir(self.dir.path()).args(arguments).env(CACHE.0, CACHE.1);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program; arguments stand between spaces.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_all(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs the program, with arguments that may hold spaces.
    pub(crate) fn run_all(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments.iter().copied()).output().unwrap())
    }

    /// Runs the program with something on its standard input.
    pub(crate) fn feed(&self, line: &str, input: impl AsRef<[u8]>) -> Ran {
        let mut child = self.start(line);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.as_ref().to_owned();
        // The program may stop reading before the end.
        let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Ran::of(output)
    }

    /// Starts the program with its standard input open.
    pub(crate) fn start(&self, line: &str) -> Child {
        self.command(line.split_whitespace()).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a command that must fail over the user's input: exit code 2, nothing on standard output,
    /// no file made, changed or left over. Gives the complaint.
    pub(crate) fn refuses(&self, line: &str) -> String {
        let before = self.tree("");
        let ran = self.run(line);
        assert_eq!(self.tree(""), before, "{line} left something behind");
        ran.complaint()
    }

    /// The same, with something on standard input.
    pub(crate) fn refuses_input(&self, line: &str, input: impl AsRef<[u8]>) -> String {
        let before = self.tree("");
        let ran = self.feed(line, input);
        assert_eq!(self.tree(""), before, "{line} left something behind");
        ran.complaint()
    }
}

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The run must have done its work; gives what it printed.
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        assert!(!self.stderr.contains("panicked") && !self.stderr.contains('\u{1b}'), "{self:#?}");
        self.stdout
    }

    /// The run must have been refused, with nothing printed but a complaint; gives that.
    pub(crate) fn complaint(self) -> String {
        assert_eq!(self.code, Some(2), "{self:#?}");
        assert_eq!(self.stdout, "", "half an answer");
        let start = self.stderr.rfind("error: ").unwrap_or_else(|| panic!("no complaint: {self:#?}"));
        self.stderr[start + "error: ".len()..].trim_end().to_owned()
    }
}

/// A column of texts.
pub(crate) fn texts<'a>(rows: impl IntoIterator<Item = impl Into<Option<&'a str>>>) -> ArrayRef {
    Arc::new(rows.into_iter().map(Into::into).collect::<StringArray>())
}

/// Lines of JSON.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(content: impl AsRef<[u8]>) -> Vec<u8> {
    ::zstd::encode_all(content.as_ref(), 3).unwrap()
}

/// Waits until something holds, for a minute at most.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal, by the name that `kill` knows it by.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", child.id())).status().unwrap();
    assert!(sent.success());
}

/// What a child said on standard error, to its end.
pub(crate) fn stderr_of(child: &mut Child) -> String {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

/// Says that a test was skipped, straight to standard error: what a passing test prints is otherwise
/// not shown.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
