//! A model folder, damaged.
//!
//! The input is a list of edits to the files of a small model. The first byte says whether checksums
//! are made to fit again afterwards, so that the readers behind them are reached. Each edit is
//!
//! ```text
//! file (1 byte)  offset (2, little-endian)  bytes to take out (1; 255 takes all)  bytes to put in (1)
//! ```
//!
//! and the bytes to put in; 255 puts in all that is left. Whatever comes out, loading must answer with
//! a model or an error, and a model must give finite scores or an error.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use polytag::artifact::{MANIFEST, ModelFolder};
use polytag::data::{Label, LabelChange, Passage, ReadOptions, Task};
use polytag::encoder::EncoderCache;
use polytag::method::{MethodConfig, TrainContext, change_labels, fit, load};
use polytag::predict::Ask;
use polytag::progress::{Silent, Stop};
use polytag_nn::device::Device;
use sha2::{Digest, Sha256};

const FILES: [&str; 5] = [MANIFEST, "labels.jsonl", "words.txt", "weights.safetensors", "labels.log"];
const LOG: usize = 4;

const LABELS: &str = r#"{"id":"1","name":"customs tariff","aliases":["duties on imports"]}
{"id":"2","name":"fishing quota","parents":["1"]}
{"id":"3","name":"apiculture","description":"Keeping bees for honey"}
"#;
const TRAIN: &str = r#"{"id":"a","title":"Tariffs","text":"Customs duties on honey","labels":["1","3"]}
{"id":"b","text":"Quotas for fishing","labels":["2"]}
{"id":"c","text":"Nothing of the kind"}
"#;
const PASSAGE: Passage<'static> = Passage {
    id: None,
    title: Some("Imports of honey"),
    text: "Customs duties, a fishing quota, and bees; bee venom.",
};

/// The folder that is damaged, and the files it starts from.
struct Model {
    dir: PathBuf,
    files: [Vec<u8>; 5],
}

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    // Threads would only blur what each input covers.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    pool.build_global().expect("nobody else builds it");
    let root = tempfile::tempdir().expect("a temporary folder").keep();
    let (task, dir) = (root.join("task"), root.join("model"));
    fs::create_dir(&task).expect("room for the task");
    fs::write(task.join("labels.jsonl"), LABELS).expect("room for the task");
    fs::write(task.join("train.jsonl"), TRAIN).expect("room for the task");
    let task = Task::open(&task, &ReadOptions::with_spool(&root)).expect("the task is in order");
    let config = MethodConfig::named("lexical", &serde_json::json!({})).expect("a preset");
    let (device, encoders) = (Device::cpu(), EncoderCache::new(root.join("encoders")));
    let (stop, progress) = (&Stop::default(), &Silent);
    let context = TrainContext { seed: 0, device: &device, encoders: &encoders, stop, progress };
    fit(&task, config, &dir, &context).expect("the task is in order");
    let changes = [
        LabelChange::Add { label: Label::new("4", "bee venom") },
        LabelChange::Rename { id: "2".into(), name: "fishery".into() },
        LabelChange::Remove { id: "3".into() },
    ];
    change_labels(&dir, &changes, &device).expect("the changes fit");
    let files = FILES.map(|name| fs::read(dir.join(name)).expect("the model was written"));
    Model { dir, files }
});

fuzz_target!(|data: &[u8]| {
    let Some((&seal, edits)) = data.split_first() else { return };
    let mut files = MODEL.files.clone();
    edit(&mut files, edits);
    if seal & 1 == 1 {
        reseal(&mut files);
    }
    for ((name, content), was) in FILES.iter().zip(&files).zip(&MODEL.files) {
        write_if_changed(&MODEL.dir.join(name), content, was);
    }
    ask(&MODEL.dir);
    for ((name, content), was) in FILES.iter().zip(&files).zip(&MODEL.files) {
        write_if_changed(&MODEL.dir.join(name), was, content);
    }
});

fn write_if_changed(path: &Path, content: &[u8], was: &[u8]) {
    if content != was {
        fs::write(path, content).expect("room for the model");
    }
}

fn edit(files: &mut [Vec<u8>; 5], mut edits: &[u8]) {
    while let [file, low, high, out, put, rest @ ..] = edits {
        let file = &mut files[usize::from(*file) % FILES.len()];
        let start = usize::from(u16::from_le_bytes([*low, *high])).min(file.len());
        let (start, end) = match *out {
            255 => (0, file.len()),
            out => (start, file.len().min(start + usize::from(out))),
        };
        let put = if *put == 255 { rest.len() } else { rest.len().min(usize::from(*put)) };
        file.splice(start..end, rest[..put].iter().copied());
        edits = &rest[put..];
    }
}

/// Makes the checksums fit the files again, as far as there is a place for them.
fn reseal(files: &mut [Vec<u8>; 5]) {
    if let Ok(log) = std::str::from_utf8(&files[LOG]) {
        files[LOG] = resealed_log(log).into_bytes();
    }
    let Ok(mut manifest) = String::from_utf8(files[0].clone()) else { return };
    for index in 1..LOG {
        let entry = |bytes: &[u8]| {
            format!(
                "\"name\": \"{}\",\n      \"bytes\": {},\n      \"sha256\": \"{}\"",
                FILES[index],
                bytes.len(),
                sha256(bytes)
            )
        };
        // The sources of a model come first, and one of them has the name of a file of its own.
        if files[index] != MODEL.files[index] {
            manifest = manifest.replace(&entry(&MODEL.files[index]), &entry(&files[index]));
        }
    }
    if let Some((body, _)) = manifest.rsplit_once(",\n  \"checksum\": \"") {
        manifest = format!("{body},\n  \"checksum\": \"{}\"\n}}\n", sha256(body.as_bytes()));
    }
    files[0] = manifest.into_bytes();
}

fn resealed_log(log: &str) -> String {
    let mut out = String::new();
    let mut chain = 0u32;
    for line in log.split_inclusive('\n') {
        let (Some(json), true) = (line.trim_end_matches('\n').splitn(3, ' ').nth(2), line.ends_with('\n'))
        else {
            out.push_str(line);
            continue;
        };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&chain.to_le_bytes());
        hasher.update(json.as_bytes());
        chain = hasher.finalize();
        out.push_str(&format!("{chain:08x} {} {json}\n", json.len()));
    }
    out
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ask(dir: &Path) {
    if let Ok(folder) = ModelFolder::open(dir) {
        let _ = folder.labels();
    }
    let model = match load(dir, &Device::cpu()) {
        Ok(model) => model,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Ok(rankings) = model.predict(&[PASSAGE], &Ask { k: 10, allowed: None }) else { return };
    assert_eq!(rankings.len(), 1);
    for entry in rankings[0].entries() {
        assert!(entry.score.is_finite() && model.label_space().is_active(entry.label));
        if let Ok(explanation) = model.explain(PASSAGE, entry.label) {
            assert!(explanation.score.is_finite());
            assert!(explanation.reasons.iter().all(|reason| reason.weight.is_finite()));
        }
    }
}
