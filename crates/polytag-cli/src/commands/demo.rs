//! `polytag demo`: the whole story in a minute, on the bundled sample.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use polytag::artifact::{FEEDBACK, LABEL_LOG, LABEL_SNAPSHOT};
use polytag::data::{Document, Split, Task};
use polytag::encoder::EncoderCache;
use polytag::method::{self, MethodConfig, TrainContext};
use polytag::metric::{self, EvaluationConfig, EvaluationPlan};
use polytag::predict::{Ask, Predictor};
use polytag::storage::{Existing, StagedFolder};
use polytag_nn::device::Device;

use super::{DONE, Done, evaluate, fit, serve};
use crate::output;
use crate::settings::Session;

/// The bundled sample: 2,000 Debian packages and their tags.
const SAMPLE: [(&str, &[u8]); 5] = [
    ("README.md", include_bytes!("../../../../testdata/debtags-sample/README.md")),
    ("labels.jsonl", include_bytes!("../../../../testdata/debtags-sample/labels.jsonl")),
    ("train.jsonl", include_bytes!("../../../../testdata/debtags-sample/train.jsonl")),
    ("dev.jsonl", include_bytes!("../../../../testdata/debtags-sample/dev.jsonl")),
    ("test.jsonl", include_bytes!("../../../../testdata/debtags-sample/test.jsonl")),
];

/// Packages of the dev split to look at: the first two, and one with a tag that train lacks.
const EXAMPLES: [&str; 3] = ["4g8", "7zip", "gopher"];

/// Metrics worth a first look.
const SHOWN: [&str; 6] = ["P@1", "P@5", "R@10", "nDCG@5", "ZSR@10", "ZSR@100"];

/// Tag the bundled sample and see what comes out
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  polytag demo --dir /tmp/demo\n  polytag demo --serve")]
pub(crate) struct Demo {
    /// Where to put the sample task and the model
    #[arg(long, default_value = "polytag-demo", value_name = "FOLDER")]
    dir: PathBuf,
    /// Serve the model afterwards: a page to tag with
    #[arg(long)]
    serve: bool,
    /// The port to serve on; 0 takes any that is free
    #[arg(long, default_value_t = 8080, value_name = "N", requires = "serve")]
    port: u16,
}

impl Demo {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let (task_dir, model_dir) = (self.dir.join("task"), self.dir.join("model"));
        unpack(&task_dir)?;
        output::print_text(&format!(
            "1. The task: packages of Debian, and the tags people gave them, in {}\n",
            task_dir.display()
        ))?;
        let task = session.task(&task_dir)?;
        output::print_text(&format!(
            "   {} labels, each with a name, some with a description.\n\n",
            task.labels().len()
        ))?;

        let started = Instant::now();
        let config = MethodConfig::named("lexical", &serde_json::json!({})).map_err(polytag::Error::from)?;
        // Neither is used: the demo runs anywhere, with nothing fetched.
        let (device, encoders) = (Device::cpu(), EncoderCache::new(self.dir.join("encoders")));
        let context = TrainContext::new((&device, &encoders), (&session.stop, session.progress.as_ref()));
        output::print_text(
            "2. The model: words of the document against words of the label. No labelled pair is used.\n",
        )?;
        if is_in_use(&model_dir) {
            let model = model_dir.display();
            output::print_text(&format!("   {model} is kept as it is: people have worked with it.\n"))?;
        } else {
            let fitted = method::fit(&task, config, &model_dir, &context)?;
            output::print_text(&format!("   {}\n", fit::summary(&fitted.manifest, &model_dir, started)))?;
        }

        // From the disk, as every later command will have it.
        let model = session.model(&model_dir, &device)?;
        output::print_text("3. How good it is, on 300 packages it has not seen, in percent:\n")?;
        output::print_text(&self.measure(&task, (&*model, &model_dir), session)?)?;

        output::print_text(
            "4. Three of them (* people gave it this tag, + no training document carries it):\n\n",
        )?;
        for example in examples(&task)? {
            output::print_text(&show(&*model, &example)?)?;
        }
        output::print_text(&self.next_steps(&task_dir, &model_dir))?;
        if self.serve {
            return serve::serve_demo(&task_dir, &model_dir, self.port, session);
        }
        Ok(DONE)
    }

    fn measure(
        &self,
        task: &Task,
        (model, model_dir): (&dyn Predictor, &Path),
        session: &Session,
    ) -> anyhow::Result<String> {
        let plan = EvaluationPlan::try_from(EvaluationConfig::default()).map_err(polytag::Error::from)?;
        let report = metric::evaluate(model, task, Split::Dev, &plan, &session.watch())?;
        evaluate::keep(&report, Split::Dev, model_dir)?;
        let values = SHOWN.iter().filter_map(|name| Some(format!("{name} {:.1}", report.value(name)?)));
        Ok(format!(
            "   {}\n   (ZSR: how many of the tags that no training document carries were found)\n\n",
            values.collect::<Vec<_>>().join("   ")
        ))
    }

    fn next_steps(&self, task: &Path, model: &Path) -> String {
        let (task, model) = (task.display(), model.display());
        format!(
            "5. What to try next:\n\
             \n   polytag inspect {task}\
             \n   polytag evaluate {model} {task} --split test\
             \n   polytag explain {model} --text 'A small web server that speaks TLS'\
             \n   polytag labels {model} add --id use::beekeeping --name 'Keeping bees'\
             \n   echo 'Plan the year of your bees and hives' | polytag predict {model} --plain\
             \n   polytag serve {model} --task {task}\
             \n\n   Your own documents: polytag import --help\n   \
             (`cargo run --release --` stands for `polytag` where it is not installed.)\n"
        )
    }
}

/// Whether labels of the model were changed or judged, which fitting it again would lose.
fn is_in_use(model: &Path) -> bool {
    [LABEL_LOG, LABEL_SNAPSHOT, FEEDBACK].iter().any(|name| model.join(name).exists())
}

/// Writes the sample, unless it is there.
fn unpack(target: &Path) -> Result<(), polytag::Error> {
    if target.join("labels.jsonl").is_file() {
        return Ok(());
    }
    let folder = StagedFolder::create(target, Existing::Refuse, &[])?;
    for (name, content) in SAMPLE {
        let mut sink = folder.file(name)?;
        sink.write(content)?;
        sink.finish()?;
    }
    Ok(folder.commit()?)
}

fn examples(task: &Task) -> Result<Vec<Document>, polytag::Error> {
    let mut found = Vec::new();
    for document in task.documents(Split::Dev)? {
        let document = document?;
        if EXAMPLES.contains(&document.id.as_str()) {
            found.push(document);
        }
    }
    Ok(found)
}

fn show(model: &dyn Predictor, document: &Document) -> anyhow::Result<String> {
    let space = model.label_space();
    let rankings =
        model.predict(&[document.passage()], &Ask { k: 5, allowed: None }).map_err(polytag::Error::from)?;
    let opening: String = document.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let opening: String = opening.chars().take(88).collect();
    let mut text =
        format!("   {}: {}\n   {opening}…\n", document.id, document.title.as_deref().unwrap_or_default());
    for entry in rankings[0].entries() {
        let label = space.label(entry.label);
        let gold = if document.gold().contains(&entry.label) { '*' } else { ' ' };
        let unseen = if space.is_seen(entry.label) { ' ' } else { '+' };
        let why = model.explain(document.passage(), entry.label).map_err(polytag::Error::from)?;
        let mut words: Vec<String> = Vec::new();
        for reason in why.reasons.iter().map(|reason| format!("{:?}", reason.words)) {
            if words.len() < 2 && !words.contains(&reason) {
                words.push(reason);
            }
        }
        text.push_str(&format!(
            "   {gold}{unseen} {:.2}  {:34} {:26} for {}\n",
            entry.score,
            label.name,
            label.id,
            words.join(", ")
        ));
    }
    Ok(text + "\n")
}
