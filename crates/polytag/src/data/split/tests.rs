//! Splits of small tasks, by hand and by chance.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::data::reader::ReadOptions;
use crate::progress::Silent;

/// Labels of each document; `None` where nobody labelled it.
type Gold = Vec<Option<BTreeSet<u8>>>;

const LABELS: u8 = 12;

fn write_task(dir: &Path, splits: [&Gold; 3]) -> Task {
    let mut writer = TaskWriter::create(dir, &[]).unwrap();
    for label in 0..LABELS {
        writer.label(crate::data::Label::new(label.to_string(), format!("label {label}"))).unwrap();
    }
    for (split, gold) in Split::ALL.into_iter().zip(splits) {
        for (position, labels) in gold.iter().enumerate() {
            let labels = labels.as_ref().map(|labels| labels.iter().map(u8::to_string).collect());
            let text = format!("text {position}");
            let record = DocumentRecord { id: format!("{split}{position}"), title: None, text, labels };
            writer.document(split, &record).unwrap();
        }
    }
    writer.finish().unwrap();
    Task::open(dir, &ReadOptions::with_spool(dir)).unwrap()
}

fn run(task: &Task, cut: Cut, seed: u64, target: &Path) -> Result<SplitSummary, DataError> {
    split(task, &SplitConfig { cut, seed }, target, &Silent, &Stop::default())
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    fs::read_dir(dir).unwrap().map(entry).collect()
}

fn gold_of(dir: &Path, split: Split) -> Gold {
    let task = Task::open(dir, &ReadOptions::with_spool(dir)).unwrap();
    let labels = |document: Document| {
        document.labels.map(|labels| {
            labels
                .iter()
                .map(|&label| task.labels().label(label).id.parse().unwrap())
                .collect::<BTreeSet<u8>>()
        })
    };
    task.documents(split).unwrap().map(|document| labels(document.unwrap())).collect()
}

fn pairs(gold: &Gold) -> BTreeSet<(usize, u8)> {
    let labelled =
        gold.iter().enumerate().filter_map(|(position, labels)| Some((position, labels.as_ref()?)));
    labelled.flat_map(|(position, labels)| labels.iter().map(move |&label| (position, label))).collect()
}

fn some(labels: &[u8]) -> Option<BTreeSet<u8>> {
    Some(labels.iter().copied().collect())
}

#[test]
fn zero_shot_labels_leave_train_and_stay_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    // 1 is in train and dev, 2 in train and test; 3 is in train alone, 4 in test alone.
    let train = vec![some(&[1]), some(&[2, 3]), some(&[]), None];
    let (dev, test) = (vec![some(&[1])], vec![some(&[2, 4])]);
    let task = write_task(&dir.path().join("in"), [&train, &dev, &test]);
    let out = dir.path().join("out");
    let summary = run(&task, Cut::ZeroShot { labels: 2 }, 7, &out).unwrap();
    assert_eq!(gold_of(&out, Split::Train), [None, some(&[3]), some(&[]), None]);
    let TaskSummary { labels, ref documents, pairs } = summary.task;
    assert_eq!((labels, pairs), (12, 4));
    assert_eq!(documents.values().sum::<u64>(), 6);
    let expected = SplitSummary {
        labels_kept: 1,
        labels_dropped: 2,
        unseen_labels: 11,
        pairs_kept: 1,
        pairs_dropped: 2,
        documents_unlabelled: 1,
        task: summary.task.clone(),
    };
    assert_eq!(summary, expected);
    assert!(!files(&out)["train.jsonl"].lines().next().unwrap().contains("labels"));

    let error = run(&task, Cut::ZeroShot { labels: 3 }, 7, &dir.path().join("more")).unwrap_err().to_string();
    assert!(error.contains("only 2 are both in train and in dev or test"), "{error}");
    assert!(run(&task, Cut::ZeroShot { labels: 0 }, 7, &dir.path().join("none")).is_err());
    assert!(!dir.path().join("more").exists());
}

#[test]
fn the_task_itself_is_never_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let train = vec![some(&[1])];
    let task = write_task(dir.path().join("in").as_path(), [&train, &train, &train]);
    let error = run(&task, Cut::ZeroShot { labels: 1 }, 0, &dir.path().join("in")).unwrap_err();
    assert!(error.to_string().contains("is both input and output"), "{error}");
}

#[test]
fn a_task_without_train_or_with_a_stop_gives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let gold = vec![some(&[1])];
    let task = write_task(&dir.path().join("in"), [&Vec::new(), &gold, &gold]);
    let cut = Cut::FewShot { share: "50%".parse().unwrap() };
    assert!(matches!(run(&task, cut, 0, &dir.path().join("out")), Err(DataError::MissingFile { .. })));

    let task = write_task(&dir.path().join("in2"), [&gold, &gold, &gold]);
    let stop = Stop::default();
    stop.ask();
    let stopped = split(&task, &SplitConfig { cut, seed: 0 }, &dir.path().join("out"), &Silent, &stop);
    assert!(matches!(stopped, Err(DataError::Stopped)));
    assert!(!dir.path().join("out").exists());
}

#[test]
fn the_configuration_is_readable_json() {
    let config = SplitConfig { cut: Cut::FewShotPairs { share: "5%".parse().unwrap() }, seed: 3 };
    let json = r#"{"cut":{"kind":"few-shot-pairs","share":0.05},"seed":3}"#;
    assert_eq!(serde_json::to_string(&config).unwrap(), json);
    assert_eq!(serde_json::from_str::<SplitConfig>(json).unwrap(), config);
    assert!(serde_json::from_str::<SplitConfig>(r#"{"cut":{"kind":"few-shot","share":5}}"#).is_err());
}

fn gold(most: usize) -> impl Strategy<Value = Gold> {
    let labels = proptest::collection::btree_set(0..LABELS, 0..5);
    proptest::collection::vec(proptest::option::weighted(0.9, labels), 1..most)
}

proptest! {
    // Each case writes seven folders and sees them onto the disk.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_cut_keeps_its_promises(
        train in gold(30), dev in gold(9), test in gold(9), percent in 0u32..=100, seed in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let task = write_task(&dir.path().join("in"), [&train, &dev, &test]);
        let share: Share = format!("{percent}%").parse().unwrap();
        let before = pairs(&train);
        let seen: BTreeSet<u8> = before.iter().map(|&(_, label)| label).collect();
        let original = files(task.dir());
        for (name, cut) in [
            ("zero", Cut::ZeroShot { labels: 1 + percent as usize / 25 }),
            ("few", Cut::FewShot { share }),
            ("pairs", Cut::FewShotPairs { share }),
        ] {
            let out = dir.path().join(name);
            let Ok(summary) = run(&task, cut, seed, &out) else {
                // A zero-shot split can ask for too much; no split can take off what is not there.
                let zero_shot = matches!(cut, Cut::ZeroShot { .. });
                prop_assert!(zero_shot || before.is_empty());
                continue;
            };
            let after_gold = gold_of(&out, Split::Train);
            let after = pairs(&after_gold);
            let left: BTreeSet<u8> = after.iter().map(|&(_, label)| label).collect();

            prop_assert!(after.is_subset(&before));
            prop_assert_eq!(after_gold.len(), train.len());
            for (old, new) in train.iter().zip(&after_gold) {
                let empty_before = old.as_ref().is_some_and(BTreeSet::is_empty);
                prop_assert_eq!(new.as_ref().is_some_and(BTreeSet::is_empty), empty_before);
            }
            prop_assert_eq!(summary.pairs_kept, after.len() as u64);
            prop_assert_eq!(summary.pairs_dropped, (before.len() - after.len()) as u64);
            prop_assert_eq!(summary.labels_kept, left.len() as u64);
            prop_assert_eq!(summary.labels_dropped, (seen.len() - left.len()) as u64);
            prop_assert_eq!(summary.unseen_labels, u64::from(LABELS) - left.len() as u64);
            match cut {
                Cut::ZeroShot { labels } => {
                    prop_assert_eq!(seen.len() - left.len(), labels);
                    let measured: BTreeSet<u8> = pairs(&dev).union(&pairs(&test)).map(|&(_, label)| label).collect();
                    prop_assert!(seen.difference(&left).all(|label| measured.contains(label)));
                }
                Cut::FewShot { share } => prop_assert_eq!(left.len() as u64, share.of(seen.len() as u64)),
                Cut::FewShotPairs { share } => {
                    prop_assert_eq!(after.len() as u64, share.of(before.len() as u64));
                }
            }
            if !matches!(cut, Cut::FewShotPairs { .. }) {
                // A label that stays keeps all its documents.
                let whole: BTreeSet<_> = before.iter().copied().filter(|(_, label)| left.contains(label)).collect();
                prop_assert_eq!(&after, &whole);
            }

            let written = files(&out);
            for file in ["labels.jsonl", "dev.jsonl", "test.jsonl"] {
                prop_assert_eq!(written.get(file), original.get(file));
            }
            let again = dir.path().join(format!("{name}-again"));
            run(&task, cut, seed, &again).unwrap();
            prop_assert_eq!(written, files(&again));
        }
    }
}
