//! MACLR and its peers: they learn from texts alone, go on where they were broken off, take few pairs, and say what
//! cannot be learned from. With a tiny encoder of random weights.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod stages; // where one ends and the next begins

use std::fs;
use std::path::{Path, PathBuf};

use common::{Fit, Tried, answers, encoder, read};
use polytag::data::{Label, LabelChange, Passage, Split};
use polytag::method::{MethodConfig, change_labels};
use polytag::predict::Ask;
use polytag::progress::Stop;
use polytag_nn::device::Device;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::tokenizer::Text;
use serde_json::{Value, json};

/// Labels, and the words that documents about them are made of.
const TOPICS: [(&str, [&str; 3]); 6] = [
    ("river", ["p", "q", "r"]),
    ("tariff", ["s", "t", "u"]),
    ("book", ["v", "w", "x"]),
    ("sea", ["y", "z", "k"]),
    ("quota", ["j", "l", "m"]),
    ("map", ["n", "o", "h"]),
];

/// A document about a topic: the title is the label's name, the text has other words.
fn document(i: usize, titled: bool) -> Value {
    let (name, words) = TOPICS[i % 6];
    let text = [words[i / 6 % 3], "the", words[(i / 18 + 1) % 3], words[i / 54 % 3]].join(" ");
    let title = titled.then(|| ["the ", "", "a "][i / 6 % 3].to_owned() + name);
    json!({"id": i.to_string(), "title": title.unwrap_or_default(), "text": text, "labels": [name]})
}

fn lines(values: impl Iterator<Item = Value>) -> String {
    values.map(|value| format!("{value}\n")).collect()
}

/// A task of 120 documents with titles and 30 of dev without.
fn task(dir: &Path) -> PathBuf {
    let task = dir.join("task");
    fs::create_dir_all(&task).unwrap();
    let labels = TOPICS.iter().map(|(name, _)| json!({"id": name, "name": name}));
    fs::write(task.join("labels.jsonl"), lines(labels)).unwrap();
    fs::write(task.join("train.jsonl"), lines((0..120).map(|i| document(i, true)))).unwrap();
    fs::write(task.join("dev.jsonl"), lines((0..30).map(|i| document(i, false)))).unwrap();
    task
}

fn config(method: &str, more: &Value) -> Result<MethodConfig, polytag::Error> {
    let mut settings =
        json!({"encoder": encoder("bert"), "max_tokens": 32, "batch": 24, "learning_rate": 2e-3});
    let small = json!({"clusters": 4, "label_regularisation": 4, "stage_one_epochs": 30, "stage_two_epochs": 4,
        "pseudo_encoder": 1, "pseudo_lexical": 1, "words": 0, "label_prior": 0, "keep": 0});
    for from in [&small, more] {
        settings.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
    }
    if !method.starts_with("maclr") {
        for name in
            ["clusters", "label_regularisation", "stage_two_epochs", "pseudo_encoder", "pseudo_lexical"]
        {
            settings.as_object_mut().unwrap().remove(name);
        }
    }
    if method == "few-shot" {
        settings.as_object_mut().unwrap().remove("stage_one_epochs");
    }
    Ok(MethodConfig::named(method, &settings)?)
}

/// The share of titleless documents whose best label is right.
fn right(model: &Path) -> f64 {
    let texts: Vec<String> =
        (0..60).map(|i| document(i, false)["text"].as_str().unwrap().to_owned()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let found = answers(read(model).as_ref(), &texts);
    let is_right = |i: &usize| found[*i].first().is_some_and(|(id, _)| id == TOPICS[i % 6].0);
    (0..60).filter(is_right).count() as f64 / 60.0
}

impl Tried {
    fn new() -> Tried {
        Tried::of(task)
    }

    fn fit(&self, method: &str, more: &Value) -> Result<(PathBuf, Vec<String>), polytag::Error> {
        self.fitted(config(method, more)?)
    }
}

#[test]
fn texts_alone_teach_what_documents_are_about() {
    let tried = Tried::new();
    let frozen = tried.dir.path().join("frozen");
    let as_it_is = MethodConfig::named("frozen", &json!({"encoder": encoder("bert")})).unwrap();
    Fit { task: &tried.task, model: &frozen, folder: None, stop: Stop::default() }.run(as_it_is).unwrap();
    // 500 steps of stage one.
    let (maclr, heard) = tried.fit("maclr", &json!({"stage_one_epochs": 100})).unwrap();
    let (ict, _) = tried.fit("ict", &json!({})).unwrap();
    let found = [&frozen, &ict, &maclr].map(|model| right(model));
    assert!(found[0] < 0.5 && found[1] > 0.8 && found[2] > 0.8, "frozen, ict, maclr: {found:?}");
    for stage in ["stage one", "stage two"] {
        for told in ["expected seconds", "expected memory", "seconds", "memory"] {
            let name = format!("{stage}: {told}");
            assert!(heard.iter().any(|event| event.contains(&name)), "{name}: {heard:?}");
        }
    }
    assert!(heard.iter().any(|event| event.contains("Row") && event.contains("R@100")), "{heard:?}");
}

#[test]
fn what_is_measured_while_training_is_what_the_model_does() {
    let tried = Tried::new();
    // Labels longer than what is read of them.
    let labels = TOPICS
        .iter()
        .map(|(name, words)| json!({"id": name, "name": name, "description": words.join(" ").repeat(9)}));
    tried.write("labels.jsonl", &lines(labels));
    let (model, heard) = tried.fit("maclr", &json!({"max_steps": 40, "label_tokens": 6})).unwrap();
    let row = heard.iter().rfind(|event| event.starts_with("Row")).unwrap();
    let report = tried.report(&model, Split::Dev);
    for name in ["P@1", "P@5", "R@10"] {
        let value = format!("(\"{name}\", {:?})", report.value(name).unwrap());
        assert!(row.contains(&value), "{value} {row}");
    }
}

#[test]
fn peers_are_configurations_that_train() {
    let tried = Tried::new();
    for method in ["simcse", "rts", "few-shot", "maclr-few-shot"] {
        let more = json!({"max_steps": 30});
        let (model, heard) = tried.fit(method, &more).unwrap();
        assert_eq!(answers(read(&model).as_ref(), &["the p q"])[0].len(), 6, "{method}");
        let given = heard.iter().any(|event| event.contains("few-shot: seconds"));
        assert_eq!(given, method.ends_with("few-shot"), "{method}");
    }
    tried.fit("ict", &json!({"pairs": "sentence", "max_steps": 3})).unwrap();
    // Texts longer than the encoder takes, cut into pieces and in clusters.
    let long = |i: usize| json!({"id": i.to_string(), "text": "p q r the ".repeat(50)});
    tried.write("train.jsonl", &lines((0..20).map(long)));
    tried.fit("maclr", &json!({"pairs": "chunks", "max_tokens": 64, "max_steps": 4})).unwrap();
}

#[test]
fn a_few_pairs_teach_what_titles_do_not() {
    let tried = Tried::new();
    // Titles that say nothing: only the pairs tell what documents are about.
    let vague = |i: usize| {
        let mut document = document(i, true);
        document["title"] = json!("the");
        if i >= 36 {
            document.as_object_mut().unwrap().remove("labels");
        }
        document
    };
    tried.write("train.jsonl", &lines((0..120).map(vague)));
    let less = json!({"stage_one_epochs": 4, "stage_two_epochs": 1});
    let (without, _) = tried.fit("maclr", &less).unwrap();
    let more =
        json!({"stage_one_epochs": 4, "stage_two_epochs": 1, "few_shot_epochs": 60, "few_shot_rate": 1.0});
    let (with, _) = tried.fit("maclr-few-shot", &more).unwrap();
    assert!(right(&with) > 0.9 && right(&without) < 0.7, "{} {}", right(&with), right(&without));
    // One by one, each beside a label that was drawn; the same again with the same seed.
    let mut single = more.clone();
    single["few_shot_loss"] = json!("cosine");
    single["few_shot_epochs"] = json!(120);
    let (with, _) = tried.fit("maclr-few-shot", &single).unwrap();
    assert!(right(&with) > 0.9, "{}", right(&with));
    let weights = |model: &Path| fs::read(model.join("encoder/model.safetensors")).unwrap();
    let first = weights(&with);
    let (again, _) = tried.fit("maclr-few-shot", &single).unwrap();
    assert!(weights(&again) == first);
    // Where documents have every label there is, none is left to draw.
    let all = |i: usize| {
        let mut document = document(i, true);
        document["labels"] = TOPICS.iter().map(|(name, _)| *name).collect();
        document
    };
    tried.write("train.jsonl", &lines((0..20).map(all)));
    tried.fit("few-shot", &json!({"few_shot_loss": "cosine", "max_steps": 2})).unwrap();
}

#[test]
fn weights_go_back_as_far_as_they_are_told_to() {
    let tried = Tried::new();
    let start = encoder("bert");
    let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    let fit = |method: &str, more: Value| {
        let (model, _) = tried.fit(method, &more).unwrap();
        let kept = tried.dir.path().join(more.to_string().replace(['/', '"'], "_"));
        fs::rename(model.join("encoder"), &kept).unwrap();
        kept
    };
    let vector = |folder: &Path| {
        let overrides = Overrides { normalise: Some(false), ..Overrides::default() };
        let encoder = SentenceEncoder::load(folder, &Device::cpu(), &overrides).unwrap();
        encoder.encode(&[Text::new("the p q")]).unwrap()
    };
    let trained = fit("maclr", json!({"max_steps": 9, "keep": 0}));
    let all = fit("maclr", json!({"max_steps": 9, "keep": 1}));
    assert_eq!(vector(&all), vector(&start));
    let half = fit("maclr", json!({"max_steps": 9, "keep": 0.5}));
    assert!(weights(&half) != weights(&trained) && weights(&half) != weights(&all));
    // Pairs go on from where the stages before them went back to, in one run or in two.
    let at_once = fit("maclr-few-shot", json!({"max_steps": 9, "keep": 0.5, "few_shot_epochs": 2}));
    let apart = fit("few-shot", json!({"max_steps": 9, "few_shot_epochs": 2, "encoder": &half}));
    assert_eq!(weights(&at_once), weights(&apart));
    assert_ne!(weights(&at_once), weights(&half));
}

#[test]
fn an_encoder_that_finds_what_words_find_is_kept() {
    let tried = Tried::new();
    let letters: Vec<char> = ('a'..='z').collect();
    let name = |i: usize| format!("{} {}", letters[i % 26], letters[i * 7 / 26 % 26]);
    let labels = (0..40).map(|i| json!({"id": i.to_string(), "name": name(i)}));
    tried.write("labels.jsonl", &lines(labels));
    fs::remove_file(tried.task.join("dev.jsonl")).unwrap();
    let kept = |text: &dyn Fn(usize) -> String| {
        let documents = (0..40).map(|i| json!({"id": i.to_string(), "title": "the", "text": text(i)}));
        tried.write("train.jsonl", &lines(documents));
        let (_, heard) = tried.fit("maclr", &json!({"max_steps": 2, "keep": null})).unwrap();
        let told = heard.iter().find(|event| event.contains("weights that is kept")).unwrap();
        told.split("value: ").nth(1).unwrap().trim_end_matches(" }").parse::<f64>().unwrap()
    };
    // A text that is a label's name, and one that hides it among words that no label has.
    let (same, hidden) =
        (kept(&name), kept(&|i| format!("{} {}", "river tariff of the sea ".repeat(6), name(i))));
    assert!((0.0..=1.0).contains(&same) && (0.0..=1.0).contains(&hidden));
    assert!(same > hidden + 0.2, "{same} {hidden}");
}

#[test]
fn a_label_added_later_scores_as_if_it_had_always_been_there() {
    let tried = Tried::new();
    let more = json!({"max_steps": 3, "stage_two_epochs": 0, "words": 1});
    let (model, _) = tried.fit("maclr", &more).unwrap();
    let text = ["a p in the sea"];
    let before = answers(read(&model).as_ref(), &text);
    let change = |change| change_labels(&model, &[change], &Device::cpu()).unwrap();
    change(LabelChange::Remove { id: "sea".into() });
    change(LabelChange::Add { label: Label::new("sea", "sea") });
    assert_eq!(answers(read(&model).as_ref(), &text), before);
}

#[test]
fn odd_tasks_are_learned_from_with_a_word() {
    let tried = Tried::new();
    let warned = |method: &str, more: &Value, words: &str| {
        let (model, heard) = tried.fit(method, more).unwrap();
        assert!(heard.iter().any(|event| event.starts_with("Warned") && event.contains(words)), "{heard:?}");
        assert!(!answers(read(&model).as_ref(), &["the p"])[0].is_empty());
    };
    let few = json!({"max_steps": 4});
    // No titles, one sentence each; all documents the same; fewer documents than clusters; empty ones among them.
    let bare = |i: usize| json!({"id": i.to_string(), "text": document(i, false)["text"]});
    tried.write("train.jsonl", &lines((0..20).map(bare)));
    warned("maclr", &few, "neither a title nor a second sentence");
    let twins = |i: usize| json!({"id": i.to_string(), "title": "river", "text": "p q the r"});
    tried.write("train.jsonl", &lines((0..20).map(twins)));
    let (model, _) = tried.fit("maclr", &few).unwrap();
    assert!(
        answers(read(&model).as_ref(), &["p q the r"])[0]
            .iter()
            .all(|(_, bits)| f32::from_bits(*bits).is_finite())
    );
    tried.write("train.jsonl", &lines((0..5).map(|i| document(i, true))));
    warned("maclr", &few, "4 clusters are too many for 5 documents: there will be 2");
    let blank =
        |i: usize| json!({"id": i.to_string(), "text": if i.is_multiple_of(2) { " " } else { "p q. The r" }});
    tried.write("train.jsonl", &lines((0..20).map(blank)));
    warned("maclr", &few, "documents without any text are left out: 10");
    // One label, whose text no tokenizer knows.
    tried.write("train.jsonl", &lines((0..20).map(bare)));
    tried.write("labels.jsonl", "{\"id\": \"1\", \"name\": \"\u{200b}\"}\n");
    tried.write("dev.jsonl", "{\"id\": \"1\", \"text\": \"the p\", \"labels\": [\"1\"]}\n");
    warned("maclr", &few, "nothing in the texts of 1 of 1 labels");
}

#[test]
fn what_cannot_be_learned_from_is_said_before_training() {
    let tried = Tried::new();
    let error = |method: &str| tried.fit(method, &json!({})).unwrap_err().to_string();
    tried.write("train.jsonl", &lines((0..1).map(|i| document(i, true))));
    assert!(error("maclr").contains("the task has 1"), "{}", error("maclr"));
    tried.write("train.jsonl", "{\"id\": \"1\", \"text\": \" \"}\n{\"id\": \"2\", \"text\": \"\"}\n");
    assert!(error("ict").contains("the task has 0"), "{}", error("ict"));
    tried.write("train.jsonl", &lines((0..9).map(|i| json!({"id": i.to_string(), "text": "p. The q"}))));
    assert!(error("few-shot").contains("no training document carries a label"), "{}", error("few-shot"));
    fs::remove_file(tried.task.join("train.jsonl")).unwrap();
    for method in ["maclr", "few-shot"] {
        let said = error(method);
        assert!(said.contains("there is no train file here") && said.contains("frozen"), "{said}");
    }
}

#[test]
fn labels_to_keep_away_from_and_texts_longer_than_the_encoder_takes() {
    let tried = Tried::new();
    // So many labels that some are drawn at random; two of them read the same.
    let letters: Vec<char> = ('a'..='z').collect();
    let more = (0..60).map(|i| json!({"id": format!("more {i}"), "name": format!("{} {}", letters[i % 26], letters[i * 7 % 26])}));
    let labels = TOPICS.iter().map(|(name, _)| json!({"id": name, "name": name})).chain(more);
    tried.write("labels.jsonl", &(lines(labels) + "{\"id\": \"twin\", \"name\": \"river\"}\n"));
    let more = json!({"max_tokens": 512, "label_pairs": 7, "label_regularisation": 6, "max_steps": 40});
    let (model, heard) = tried.fit("maclr", &more).unwrap();
    assert!(!heard.iter().any(|event| event.contains("label_regularisation")), "{heard:?}");
    let found = answers(read(&model).as_ref(), &["the p q"]).remove(0);
    let score = |id: &str| found.iter().find(|(other, _)| other == id).map(|(_, bits)| *bits);
    assert_eq!(score("river"), score("twin"), "{found:?}");
    // What it learned with them is not what it learns without.
    let other = json!({"max_tokens": 512, "label_pairs": 7, "label_regularisation": 0, "max_steps": 40});
    let (without, _) = tried.fit("maclr", &other).unwrap();
    assert_ne!(answers(read(&without).as_ref(), &["the p q"]).remove(0), found);
}

#[test]
fn words_and_guesses_count_beside_cosines() {
    let tried = Tried::new();
    let documents = (0..120).filter(|i| i % 6 != 0 || *i < 60).map(|i| document(i, true));
    tried.write("train.jsonl", &lines(documents));
    let fit = |name: &str, more: &Value| {
        let (fitted, _) = tried.fit("maclr", more).unwrap();
        let model = tried.dir.path().join(name);
        fs::rename(fitted, &model).unwrap();
        read(&model)
    };
    let steps = json!({"max_steps": 3});
    let plain = fit("plain", &steps);
    let beside = fit("beside", &json!({"max_steps": 3, "words": 0.5, "label_prior": 0.05}));
    let words = tried.dir.path().join("words");
    let lexical = MethodConfig::named("lexical", &json!({})).unwrap();
    Fit { task: &tried.task, model: &words, folder: None, stop: Stop::default() }.run(lexical).unwrap();
    let words = read(&words);
    // A label is guessed for the documents that have its name in their titles: 10 for the first, 20 for each other.
    let gain = |id: &str| 0.05 * (if id == "river" { 10.0 } else { 20.0f32 } / (110.0 / 6.0)).ln_1p();
    for text in ["the river p", "tariff of the sea, book by book", "q r s", ""] {
        let [cosines, shared, found] = [&plain, &words, &beside].map(|model| {
            let found = answers(model.as_ref(), &[text]).remove(0).into_iter();
            found.map(|(id, bits)| (id, f32::from_bits(bits))).collect::<Vec<_>>()
        });
        assert_eq!(found.len(), TOPICS.len(), "{text}");
        assert!(found.is_sorted_by(|a, b| a.1 >= b.1), "{found:?}");
        let score = |from: &[(String, f32)], id: &str| {
            from.iter().find(|(known, _)| known == id).map(|(_, score)| *score)
        };
        for (id, mixed) in &found {
            let parts = [score(&cosines, id).unwrap(), 0.5 * score(&shared, id).unwrap_or(0.0), gain(id)];
            assert!((mixed - parts.iter().sum::<f32>()).abs() < 1e-5, "{text}, {id}: {mixed} {parts:?}");
            let label = beside.label_space().find(id).unwrap();
            let explanation = beside.explain(Passage::from(text), label).unwrap();
            let weights: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
            assert!((explanation.score - mixed).abs() < 1e-4, "{text}, {id}: {explanation:?}");
            assert!((weights - mixed).abs() < 1e-4, "{text}, {id}: {explanation:?}");
            // Alone it scores as in company.
            let alone = Ask { k: 1, allowed: Some(&[label].into_iter().collect()) };
            let alone = beside.predict(&[Passage::from(text)], &alone).unwrap();
            assert_eq!(alone[0].entries()[0].score.to_bits(), mixed.to_bits(), "{text}, {id}");
        }
    }
    // The same after another label came and went.
    let model = tried.dir.path().join("beside");
    let change = |change| change_labels(&model, &[change], &Device::cpu()).unwrap();
    let changed = change(LabelChange::Add { label: Label::new("delta", "river delta") });
    assert_eq!(answers(changed.as_ref(), &["a river delta"])[0][0].0, "delta");
    change(LabelChange::Remove { id: "delta".into() });
    let text = ["the river p"];
    assert_eq!(answers(read(&model).as_ref(), &text), answers(beside.as_ref(), &text));
}

/// Makes a task of documents whose first twelve are labels themselves, each right for the one six further on.
fn write_items(tried: &Tried) {
    let labels = (0..12).map(|i| json!({"id": i.to_string(), "name": document(i, true)["title"]}));
    tried.write("labels.jsonl", &lines(labels));
    let item = |i: usize| {
        let mut item = document(i, true);
        item["labels"] = json!([((i + 6) % 12).to_string()]);
        item
    };
    tried.write("train.jsonl", &lines((0..120).map(item)));
    tried.write("dev.jsonl", &lines((0..12).map(item)));
}

#[test]
fn a_document_that_is_a_label_is_not_its_own() {
    let tried = Tried::new();
    write_items(&tried);
    let row = |more: &Value| {
        let (_, heard) = tried.fit("maclr", more).unwrap();
        let row = heard.iter().rfind(|event| event.starts_with("Row")).unwrap();
        row.split("P@1\", ").nth(1).unwrap().split(')').next().unwrap().parse::<f64>().unwrap()
    };
    let (plain, apart) = (row(&json!({})), row(&json!({"item_to_item": true})));
    assert!(apart > plain + 40.0, "{plain} {apart}");
    // The model knows it, too.
    let measured = tried.report(&tried.dir.path().join("maclr"), Split::Dev).value("P@1").unwrap();
    assert!((measured - apart).abs() < 1e-9, "{measured} {apart}");
}

#[test]
fn a_blend_of_documents_that_are_labels_leaves_each_out_of_its_own() {
    let tried = Tried::new();
    write_items(&tried);
    fs::remove_file(tried.task.join("dev.jsonl")).unwrap();
    let mut source = config("maclr", &json!({"max_steps": 1, "item_to_item": true})).unwrap().to_value();
    source["method"] = "maclr".into();
    let blend = MethodConfig::named("blend", &json!({"sources": [source, "lexical"]})).unwrap();
    let model = tried.dir.path().join("blend");
    Fit { task: &tried.task, model: &model, folder: None, stop: Stop::default() }.run(blend).unwrap();
    let model = read(&model);
    assert!(model.item_to_item());
    let text = document(3, true);
    let passage = |id| Passage { id, title: text["title"].as_str(), text: text["text"].as_str().unwrap() };
    let asked = [passage(Some("3")), passage(None)];
    let rankings = model.predict(&asked, &Ask { k: 12, allowed: None }).unwrap();
    let itself = model.label_space().find("3").unwrap();
    let has = |ranking: &polytag::ranking::Ranking| ranking.labels().any(|label| label == itself);
    assert_eq!([has(&rankings[0]), has(&rankings[1])], [false, true]);
    assert_eq!(model.explain(passage(Some("3")), itself).unwrap().score, 0.0);
}

#[test]
fn a_document_that_is_a_label_has_its_names_among_its_words() {
    let tried = Tried::new();
    // Documents and labels 0 to 11: the first six each name another label in their aliases, and nowhere else.
    let labels = (0..12).map(|i| {
        let alias = if i < 6 { format!("zone{}-kind", i + 6) } else { format!("zone{i}") };
        json!({"id": i.to_string(), "name": format!("thing {i}"), "aliases": [alias]})
    });
    tried.write("labels.jsonl", &lines(labels));
    let bare = |i| {
        let mut document = document(i, true);
        document.as_object_mut().unwrap().remove("labels");
        document
    };
    tried.write("train.jsonl", &lines((0..12).map(bare)));
    fs::remove_file(tried.task.join("dev.jsonl")).unwrap();
    let fit = |name: &str, own_names: bool, item_to_item: bool| {
        let more = json!({"max_steps": 1, "words": 0.5, "label_prior": 0.05, "item_to_item": item_to_item, "own_names": own_names});
        let (fitted, _) = tried.fit("maclr", &more).unwrap();
        let model = tried.dir.path().join(name);
        fs::rename(fitted, &model).unwrap();
        read(&model)
    };
    let [named, unnamed, apart] = [("named", true, true), ("unnamed", false, true), ("apart", true, false)]
        .map(|(name, own, item)| fit(name, own, item));
    let passage = |id| Passage { id, title: Some("the river"), text: "p the q" };
    let label = named.label_space().find("6").unwrap();
    let score = |model: &dyn polytag::predict::Predictor, id| {
        let ask = Ask { k: 1, allowed: Some(&[label].into_iter().collect()) };
        model.predict(&[passage(id)], &ask).unwrap()[0].entries()[0].score
    };
    // Label 6 shares no word with the text. It gains by being guessed for documents by their names, and by the names of the one asked about.
    let stranger = score(named.as_ref(), None);
    let gained = stranger - score(unnamed.as_ref(), None);
    assert!(gained > 0.01, "{gained}");
    assert!(score(named.as_ref(), Some("0")) > stranger + 0.1);
    for model in [&unnamed, &apart] {
        assert_eq!(score(model.as_ref(), Some("0")).to_bits(), score(model.as_ref(), None).to_bits());
    }
    let explanation = named.explain(passage(Some("0")), label).unwrap();
    let weights: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
    let whole = score(named.as_ref(), Some("0"));
    assert!((explanation.score - whole).abs() < 1e-4 && (weights - whole).abs() < 1e-4, "{explanation:?}");
}
