//! `polytag evaluate`: how good a model is on a split.

use std::path::{Path, PathBuf};

use clap::Args;
use polytag::artifact::EVALUATION;
use polytag::data::Split;
use polytag::metric::{EvaluationConfig, EvaluationPlan, Propensity, Report, evaluate};
use polytag::storage::StagedFile;

use super::{DONE, Done};
use crate::device::{EngineArguments, PrecisionArgument};
use crate::output;
use crate::settings::Session;

/// Measure a model on a split of a task
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag evaluate MODEL tasks/eurlex --split dev
  polytag evaluate MODEL tasks/mimic --split test --k 5,8,15 --json report.json
  polytag evaluate MODEL tasks/packages --split dev --item-to-item

A label is unseen where no document the model was fitted on carries it. Values are in percent, with
95 % intervals from a bootstrap over documents. Documents without labels are left out and counted. PSP weighs a label by its propensity, 1 / (1 + C (n + B)^-A).")]
pub(crate) struct Evaluate {
    /// The model folder
    model: PathBuf,
    /// The task folder
    task: PathBuf,
    /// The split
    #[arg(long, default_value = "dev")]
    split: Split,
    /// Depths for precision, nDCG and their like
    #[arg(long, value_delimiter = ',', value_name = "K,…")]
    k: Option<Vec<usize>>,
    /// Depths for recall
    #[arg(long, value_delimiter = ',', value_name = "K,…")]
    recall_k: Option<Vec<usize>>,
    /// Depths for the recall of unseen labels
    #[arg(long, value_delimiter = ',', value_name = "K,…")]
    zsr_k: Option<Vec<usize>>,
    /// A of the propensity
    #[arg(long, default_value_t = Propensity::default().a)]
    propensity_a: f64,
    /// B of the propensity
    #[arg(long, default_value_t = Propensity::default().b, allow_negative_numbers = true)]
    propensity_b: f64,
    /// Documents are labels themselves, under their own ids: leave each out of its own ranking; done anyway for a model
    /// that was fitted with item_to_item=true
    #[arg(long)]
    item_to_item: bool,
    /// Replicates of the bootstrap; 0 gives no intervals
    #[arg(long, default_value_t = EvaluationConfig::default().replicates)]
    replicates: usize,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the report as JSON to a file, or with `-` to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as Markdown to a file, or with `-` to standard output
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Keep the report with the model, where `polytag serve` shows it
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    precision: PrecisionArgument,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Writes a report into a model folder, where it replaces the one before it.
pub(super) fn keep(report: &Report, split: Split, model: &Path) -> anyhow::Result<()> {
    let mut kept = serde_json::to_value(report)?;
    kept["split"] = split.to_string().into();
    let mut file = StagedFile::create(&model.join(EVALUATION), &[]).map_err(polytag::Error::from)?;
    file.sink().write(output::json_text(&kept)?.as_bytes()).map_err(polytag::Error::from)?;
    Ok(file.commit().map_err(polytag::Error::from)?)
}

impl Evaluate {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let plan = EvaluationPlan::try_from(self.config()).map_err(polytag::Error::from)?;
        let device = self.engine.for_prediction(&self.model, self.precision, session)?;
        let model = session.model(&self.model, &device)?;
        let task = session.task(&self.task)?;
        let report = evaluate(&*model, &task, self.split, &plan, &session.watch())?;
        let inputs: [&Path; 2] = [&self.model, &self.task];
        if let Some(path) = &self.json {
            output::write_or_print(path, &output::json_text(&report)?, &inputs)?;
        }
        if let Some(path) = &self.markdown {
            output::write_or_print(path, &report.to_markdown(), &inputs)?;
        }
        if self.keep {
            keep(&report, self.split, &self.model)?;
        }
        let printed = [&self.json, &self.markdown].iter().any(|path| path.as_deref() == Some("-".as_ref()));
        if !printed {
            output::print_text(&report.to_table())?;
        }
        Ok(DONE)
    }

    fn config(&self) -> EvaluationConfig {
        let default = EvaluationConfig::default();
        EvaluationConfig {
            ks: self.k.clone().unwrap_or(default.ks),
            recall_ks: self.recall_k.clone().unwrap_or(default.recall_ks),
            zsr_ks: self.zsr_k.clone().unwrap_or(default.zsr_ks),
            propensity: Propensity { a: self.propensity_a, b: self.propensity_b },
            item_to_item: self.item_to_item,
            replicates: self.replicates,
            seed: self.seed,
        }
    }
}
