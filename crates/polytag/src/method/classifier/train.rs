//! From documents and their labels to a model.

use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::parameters::{ParameterId, ParametersBuilder};
use polytag_nn::random::Key;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::train::{Ahead, Objective, Order};
use polytag_nn::world::World;
use sha2::{Digest as _, Sha256};

use super::clusters::Clusters;
use super::config::{ClassifierConfig, Guide, OUTPUT};
use super::measured::{MEASURES, Measured};
use super::model::ClassifierModel;
use super::network::{Judge, Network};
use super::objective::{Guides, Lessons};
use crate::data::{Dataset, LabelSpace};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::training::{Documents, LabelRows, Reading, Texts, Told, Training, add_documents, record};
use crate::progress::Event;

/// Trains a classifier.
pub(super) fn train(
    method: &'static str,
    given: &ClassifierConfig,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<ClassifierModel, MethodError> {
    let space = dataset.label_space();
    let rows = LabelRows::new(space);
    let refused = |problem| MethodError::Config { method, problem };
    let steps = given.steps.shared_by(context.world.map_or(1, World::size)).map_err(refused)?;
    let config = &ClassifierConfig { steps, ..given.clone() };
    if rows.seen() == 0 {
        return Err(MethodError::NoPairs { method });
    }
    let folder = context.encoders.locate(&config.encoder)?;
    let as_it_is = Overrides { normalise: Some(false), ..Overrides::default() };
    let base = SentenceEncoder::load(&folder, &Device::cpu(), &as_it_is)?;
    let longest = base.encoder().config().longest();
    let base = base.cut_to(config.max_tokens.min(longest))?;
    // Said now, and not after all documents were read.
    for expert in &config.experts {
        expert.layers(base.encoder().last()).map_err(refused)?;
    }
    let reading =
        Reading { tokenizer: base.tokenizer(), max_tokens: base.settings().max_tokens, stop: context.stop };
    let (documents, dev) = Documents::of_splits(dataset, reading, context, config.steps.evaluations > 0)?;
    let measured = dev.map(|dev| Measured::new(dev, space));
    let warn = |words: &str| context.progress.report(Event::Warned(words));
    oddities(config, (space, &rows), &documents).iter().for_each(|words| warn(words));

    let seen = &rows.labels()[..rows.seen()];
    let clusters = match rows.seen() > config.cluster_above {
        true => Some(Clusters::of_task(dataset, (space, seen), config.cluster_size, context)?),
        false => None,
    };

    let mut builder = ParametersBuilder::default();
    let mut encoder = base.encoder().copy(base.parameters(), &mut builder)?;
    if let Some(rate) = config.steps.dropout {
        encoder.set_dropout(rate)?;
    }
    let mut begin =
        Beginning { key: Key::new(context.seed).part(0x0065_7870_6572), bias: config.bias, drawn: 0 };
    let values = |name: &str, shape| Ok(begin.values(name, shape));
    let labels = (rows.seen(), clusters);
    let network = Network::new(config, &encoder, labels, &mut builder, values).map_err(refused)?;
    let weights: usize = network.weights().iter().map(|&id| builder.info_mut(id).len()).sum();
    let name = "numbers that experts learn, millions:";
    context.progress.report(Event::Measured { name, value: weights as f64 / 1e6 });
    let guides = match config.guided_by() {
        None => None,
        Some(Guide::OneHot) => Some(Guides::OneHot(one_hot(&network, &encoder, &mut builder, &mut begin))),
        Some(Guide::Texts) => Some(Guides::Texts(label_texts(config, reading, (space, &rows), &documents)?)),
    };
    let loop_config = config.steps.loop_config(documents.len(), context.seed, measured.is_some());
    let about = fingerprint(config, (&documents, measured.as_ref()), guides.as_ref(), &network);
    let groups = config.groups(encoder.config().hidden);
    let counts = counts(space, &rows, network.columns);
    let lessons = |device: &Device| -> Result<Box<dyn Objective + '_>, Error> {
        Ok(Box::new(Lessons {
            config,
            encoder: &encoder,
            network: &network,
            documents: &documents,
            rows: &rows,
            guides: guides.as_ref(),
            counts: &counts,
            measured: measured.as_ref(),
            order: Order::new(documents.len(), context.seed),
            prepared: Ahead::default(),
            device: device.clone(),
            diverse_from: (config.diversity_after * config.steps.epoch(documents.len()) as f64).ceil() as u64,
        }))
    };
    let told = Told::begin(context.progress, "training", &MEASURES, &loop_config).of_chunks(&network.memory);
    let training = Training { config: loop_config, groups, builder, about };
    let (parameters, points) = training.finish(&lessons, told, context)?;
    let note = "Over all labels that dev documents carry.";
    let record = record(method, &points, space, (&MEASURES, note), None);
    Ok(ClassifierModel::trained(
        given.clone(),
        &base,
        (encoder, network, &parameters),
        space.clone(),
        record,
    )?)
}

/// What weights begin with.
struct Beginning {
    key: Key,
    bias: f32,
    drawn: u64,
}

impl Beginning {
    /// A bias, or small random numbers, as BERT's classifiers have.
    fn values(&mut self, name: &str, (rows, columns): (usize, usize)) -> Vec<f32> {
        if name.ends_with("biases") {
            return vec![self.bias; rows * columns];
        }
        self.drawn += 1;
        self.key.part(self.drawn).small_normals((rows, columns))
    }
}

/// For each layer of each expert that pools a matrix with a column a label.
fn one_hot(
    network: &Network,
    encoder: &Encoder,
    builder: &mut ParametersBuilder,
    begin: &mut Beginning,
) -> Vec<Vec<(ParameterId, ParameterId)>> {
    let hidden = encoder.config().hidden;
    let mut weights = Vec::new();
    for judge in &network.experts {
        let Judge::Pooled { parts, .. } = judge else { continue };
        let add = |place: usize| {
            let (name, shape) = (format!("guide{}.{place}", weights.len()), (hidden, network.columns));
            let weight = builder.add(&name, shape, &begin.values(&name, shape));
            let bias = builder.add(&format!("{name}.bias"), (1, hidden), &vec![0.0; hidden]);
            [weight, bias].iter().for_each(|&id| builder.info_mut(id).group = OUTPUT);
            (weight, bias)
        };
        let layers = (0..parts.len()).map(add).collect();
        weights.push(layers);
    }
    weights
}

/// The texts of each document's labels, one after the other between the tokens that every text begins and ends with.
fn label_texts(
    config: &ClassifierConfig,
    reading: Reading<'_>,
    (space, rows): (&LabelSpace, &LabelRows),
    documents: &Documents,
) -> Result<Texts, MethodError> {
    let longest = config.label_tokens.min(reading.max_tokens);
    let labels = &rows.labels()[..rows.seen()];
    let tokens = config.label_text.tokens(space, labels, reading.tokenizer, longest)?;
    let mut texts = Texts::default();
    for document in 0..documents.len() {
        let own = documents.labels(document).iter().map(|&label| &tokens[rows.row(label) as usize]);
        let mut text: Vec<u32> = Vec::new();
        let mut last = None;
        for label in own {
            let [first, inner @ .., end] = &label[..] else { continue };
            if text.is_empty() {
                text.push(*first);
            }
            text.extend(inner);
            last = Some(*end);
        }
        text.truncate(longest - 1);
        text.extend(last);
        texts.extend([text]);
    }
    Ok(texts)
}

/// How many documents carry each label, row by row; one for rows that fill up.
fn counts(space: &LabelSpace, rows: &LabelRows, columns: usize) -> Vec<f32> {
    let mut counts = vec![1.0; columns];
    for (count, &label) in counts.iter_mut().zip(&rows.labels()[..rows.seen()]) {
        *count = space.train_count(label) as f32;
    }
    counts
}

/// What is odd about a task, and what is made of it.
fn oddities(
    config: &ClassifierConfig,
    (space, rows): (&LabelSpace, &LabelRows),
    documents: &Documents,
) -> Vec<String> {
    let mut words = Vec::new();
    let (all, seen) = (rows.len(), rows.seen());
    if seen < all {
        words.push(format!(
            "{} of {all} labels are in no training document and will never be given; `of-lan` gives those, too",
            all - seen
        ));
    }
    let bare = (0..documents.len()).filter(|&document| documents.labels(document).is_empty()).count();
    if bare > 0 {
        words.push(format!(
            "{bare} of {} training documents carry no label: they teach what does not fit",
            documents.len()
        ));
    }
    if seen == 1 {
        words.push("there is one label only: every document will get it, with a probability".to_owned());
    }
    if config.guided_by() == Some(Guide::Texts) {
        let labels = &rows.labels()[..seen];
        let symbols: Vec<&str> =
            labels.iter().map(|&label| &space.label(label).name[..]).filter(|name| is_symbol(name)).collect();
        if let Some(first) = symbols.first() {
            words.push(format!(
                "the names of {} of {seen} labels, such as {first:?}, are symbols: as guides they teach little (--set \
                 guide=one-hot, or --method classifier)",
                symbols.len()
            ));
        }
    }
    words
}

/// Whether a name has no word in it: no three ASCII letters in a row, and no letter of another script.
fn is_symbol(name: &str) -> bool {
    let is_word = |word: &str| word.len() >= 3 || !word.is_ascii();
    !name.split(|c: char| !c.is_alphabetic()).any(is_word)
}

/// A checksum of all that a training is a function of besides the weights that it begins with.
fn fingerprint(
    config: &ClassifierConfig,
    (documents, measured): (&Documents, Option<&Measured>),
    guides: Option<&Guides>,
    network: &Network,
) -> String {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_string(config).expect("settings are plain"));
    add_documents(&mut hash, documents);
    if let Some(measured) = measured {
        add_documents(&mut hash, measured.documents());
    }
    if let Some(Guides::Texts(texts)) = guides {
        texts.add_to(&mut hash);
    }
    for cluster in network.recall.iter().flat_map(|recall| recall.clusters.of_rows()) {
        hash.update(cluster.to_le_bytes());
    }
    crate::storage::hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::is_symbol;

    #[test]
    fn symbols_are_names_without_a_word() {
        for name in ["08P01B", "++++-", "a1", "", "C4 v2"] {
            assert!(is_symbol(name), "{name}");
        }
        for name in ["tea", "EU law", "茶", "08P01B: tin"] {
            assert!(!is_symbol(name), "{name}");
        }
    }
}
