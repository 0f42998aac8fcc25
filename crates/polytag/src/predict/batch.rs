//! Tables tagged: a batch of columns in, a batch of labels out.
//!
//! A row in is a row out, in the same order. A row whose text is null has nothing to tag: it comes out with null labels and is
//! counted, so that no row is lost and none looks as if a model had found nothing in it.

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder as _, BooleanBuilder, Float32Builder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

use super::{Ask, PredictError, Predictor};
use crate::columns::{ColumnError, Ids, Texts, column, find_column};
use crate::data::{LabelSpace, Passage};
use crate::ids::LabelId;
use crate::ranking::{Ranking, Scored};

/// Which columns are what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Ids: text or whole numbers. Unless it is named here, `id` where there is such a column, else the number of the row.
    pub id: Option<String>,
    /// Titles. Unless it is named here, `title` where there is such a column.
    pub title: Option<String>,
    /// Texts.
    pub text: String,
    /// Other columns that are carried through.
    pub keep: Vec<String>,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns { id: None, title: None, text: "text".to_owned(), keep: Vec::new() }
    }
}

impl Columns {
    /// Finds the columns in a table of this schema.
    ///
    /// # Errors
    /// If one is not there, is there twice, or is of a type that cannot be read for it.
    pub fn find(&self, schema: &Schema) -> Result<FoundColumns, ColumnError> {
        let optional = |named: &Option<String>, usual: &str| match named {
            Some(name) => column(schema, name).map(Some),
            None => find_column(schema, usual),
        };
        let checked = |position: usize, check: fn(&str, &DataType) -> Result<(), ColumnError>| {
            let field = schema.field(position);
            check(field.name(), field.data_type())
        };
        let text = column(schema, &self.text)?;
        checked(text, Texts::check)?;
        let title = optional(&self.title, "title")?;
        title.map_or(Ok(()), |title| checked(title, Texts::check))?;
        let id = optional(&self.id, "id")?;
        id.map_or(Ok(()), |id| checked(id, Ids::check))?;
        let mut fields = vec![match id {
            Some(id) => schema.field(id).clone().with_name("id"),
            None => Field::new("id", DataType::Int64, false),
        }];
        let mut keep = Vec::new();
        for name in &self.keep {
            let position = column(schema, name)?;
            if name == LABELS || fields.iter().any(|field| field.name() == name) {
                return Err(ColumnError::Clash { column: name.clone() });
            }
            keep.push(position);
            fields.push(schema.field(position).clone());
        }
        fields.push(Field::new(LABELS, DataType::List(label_item()), true));
        Ok(FoundColumns { id, title, text, keep, schema: Arc::new(Schema::new(fields)) })
    }
}

/// Where the columns of a table are, and what a tagged table looks like.
#[derive(Clone, Debug)]
pub struct FoundColumns {
    id: Option<usize>,
    title: Option<usize>,
    text: usize,
    keep: Vec<usize>,
    schema: SchemaRef,
}

impl FoundColumns {
    /// The schema of the answers: `id` as it came in, the columns that are kept, and
    /// `labels: list<struct<id, name, score, seen>>`.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The position of the column of texts.
    pub(super) fn text(&self) -> usize {
        self.text
    }

    /// The positions of the columns that are read and not passed on.
    pub(super) fn read_only(&self) -> Vec<usize> {
        let read = [Some(self.text), self.title].into_iter().flatten();
        read.filter(|position| self.id != Some(*position) && !self.keep.contains(position)).collect()
    }

    /// The positions of the columns that are read, in ascending order, each once.
    pub fn positions(&self) -> Vec<usize> {
        let mut all: Vec<usize> =
            [Some(self.text), self.title, self.id].into_iter().flatten().chain(self.keep.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A tagged batch.
#[derive(Clone, Debug)]
pub struct TaggedBatch {
    /// A row for each that came in, of the schema that [`FoundColumns::schema`] tells.
    pub batch: RecordBatch,
    /// How many of them had no text, and so no labels.
    pub without_text: usize,
}

/// Tags batches of columns.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Array, RecordBatch, StringArray, cast::AsArray};
/// use polytag::data::{Label, LabelChange, LabelSpace};
/// use polytag::method::{LexicalConfig, LexicalModel};
/// use polytag::predict::{Ask, BatchTagger, Columns, Predictor};
///
/// let mut model = LexicalModel::without_documents(&LexicalConfig::default(), LabelSpace::default())?;
/// model.apply(&[LabelChange::Add { label: Label::new("tea", "tea trade") }])?;
/// let texts = StringArray::from(vec![Some("Trading tea by sea"), None]);
/// let batch = RecordBatch::try_from_iter([("text", Arc::new(texts) as _)]).unwrap();
/// let tagger = BatchTagger { model: &model, columns: &Columns::default(), ask: Ask { k: 1, allowed: None }, threshold: None };
/// let tagged = tagger.tag(&batch, 1)?;
/// let labels = tagged.batch.column_by_name("labels").unwrap().as_list::<i32>();
/// assert_eq!(labels.value(0).as_struct().column(0).as_string::<i32>().value(0), "tea");
/// assert!(labels.is_null(1) && tagged.without_text == 1);
/// # Ok::<(), polytag::Error>(())
/// ```
pub struct BatchTagger<'a> {
    /// Who is asked.
    pub model: &'a dyn Predictor,
    /// Which columns are what.
    pub columns: &'a Columns,
    /// How many labels, out of which.
    pub ask: Ask<'a>,
    /// The least score of a label that is answered with.
    pub threshold: Option<f32>,
}

impl BatchTagger<'_> {
    /// Tags the rows of a batch. `first_row` is the number of its first row, from one: rows without an id are called by
    /// their number.
    ///
    /// # Errors
    /// If a column is not as it should be, or the model gives no answer.
    pub fn tag(&self, batch: &RecordBatch, first_row: u64) -> Result<TaggedBatch, PredictError> {
        let found = self.columns.find(batch.schema_ref())?;
        self.tag_found(batch, &found, first_row)
    }

    /// The same, where the columns of the table have been found already.
    ///
    /// # Errors
    /// If the model gives no answer, or the batch is of another schema.
    pub fn tag_found(
        &self,
        batch: &RecordBatch,
        found: &FoundColumns,
        first_row: u64,
    ) -> Result<TaggedBatch, PredictError> {
        let name = |position: usize| batch.schema_ref().field(position).name().as_str();
        let texts_of = |position: usize| Texts::of(name(position), batch.column(position).as_ref());
        let texts = texts_of(found.text)?;
        let titles = found.title.map(texts_of).transpose()?;
        let ids = found.id.map(|at| Ids::of(name(at), batch.column(at).as_ref())).transpose()?;
        let id = |row: usize| ids.as_ref().and_then(|ids| ids.get(row));
        let (mut passages, mut rows) = (Vec::with_capacity(batch.num_rows()), Vec::new());
        for row in 0..batch.num_rows() {
            if let Some(text) = texts.get(row) {
                let title = titles.as_ref().and_then(|titles| titles.get(row));
                passages.push(Passage { id: id(row), title, text });
                rows.push(row);
            }
        }
        // One more where a document may be among its own labels.
        let k = self.ask.k.saturating_add(usize::from(self.model.item_to_item()));
        let rankings = self.model.predict(&passages, &Ask { k, ..self.ask })?;
        let mut lists = LabelLists::with_rows(batch.num_rows());
        for ((&row, passage), ranking) in rows.iter().zip(&passages).zip(&rankings) {
            lists.skip_to(row);
            lists.push(self.model.label_space(), self.kept(ranking, self.itself(passage)))?;
        }
        lists.skip_to(batch.num_rows());
        let mut answer = vec![match found.id {
            Some(id) => batch.column(id).clone(),
            None => row_numbers(first_row, batch.num_rows()),
        }];
        answer.extend(found.keep.iter().map(|&position| batch.column(position).clone()));
        answer.push(lists.finish());
        let answer = RecordBatch::try_new(found.schema.clone(), answer)
            .expect("one array a field, as many rows in each, of the types that were found");
        Ok(TaggedBatch { batch: answer, without_text: batch.num_rows() - rows.len() })
    }

    /// The label that a document is itself, where documents are labels.
    fn itself(&self, passage: &Passage<'_>) -> Option<LabelId> {
        let id = passage.id.filter(|_| self.model.item_to_item())?;
        self.model.label_space().find(id)
    }

    /// The entries that are answered with.
    fn kept<'r>(&self, ranking: &'r Ranking, itself: Option<LabelId>) -> impl Iterator<Item = &'r Scored> {
        let threshold = self.threshold.unwrap_or(f32::NEG_INFINITY);
        let entries = ranking.entries().iter();
        entries.filter(move |entry| entry.score >= threshold && Some(entry.label) != itself).take(self.ask.k)
    }
}

/// The column of labels in an answer.
const LABELS: &str = "labels";

/// What a label is in the answer.
fn label_fields() -> Fields {
    Fields::from(vec![
        Field::new("id", DataType::Utf8, false),
        Field::new("name", DataType::Utf8, false),
        Field::new("score", DataType::Float32, false),
        Field::new("seen", DataType::Boolean, false),
    ])
}

fn label_item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Struct(label_fields()), false))
}

fn row_numbers(first: u64, rows: usize) -> ArrayRef {
    let first = i64::try_from(first).unwrap_or(i64::MAX);
    Arc::new(Int64Array::from_iter_values((0..rows as i64).map(|row| first.saturating_add(row))))
}

/// The column of labels, row by row.
struct LabelLists {
    ids: StringBuilder,
    names: StringBuilder,
    scores: Float32Builder,
    seen: BooleanBuilder,
    lengths: Vec<usize>,
    valid: Vec<bool>,
    /// The bytes of ids, or of names, at most.
    bytes: usize,
}

impl LabelLists {
    fn with_rows(rows: usize) -> LabelLists {
        LabelLists {
            ids: StringBuilder::new(),
            names: StringBuilder::new(),
            scores: Float32Builder::new(),
            seen: BooleanBuilder::new(),
            lengths: Vec::with_capacity(rows),
            valid: Vec::with_capacity(rows),
            bytes: 0,
        }
    }

    /// Rows before this one that have no text.
    fn skip_to(&mut self, row: usize) {
        self.lengths.resize(row, 0);
        self.valid.resize(row, false);
    }

    fn push<'r>(
        &mut self,
        space: &LabelSpace,
        entries: impl Iterator<Item = &'r Scored>,
    ) -> Result<(), ColumnError> {
        let before = self.scores.len();
        for entry in entries {
            let label = space.label(entry.label);
            self.bytes += label.id.len().max(label.name.len()).max(1);
            if i32::try_from(self.bytes).is_err() {
                return Err(ColumnError::TooLarge);
            }
            self.ids.append_value(&label.id);
            self.names.append_value(&label.name);
            self.scores.append_value(entry.score);
            self.seen.append_value(space.is_seen(entry.label));
        }
        self.lengths.push(self.scores.len() - before);
        self.valid.push(true);
        Ok(())
    }

    fn finish(mut self) -> ArrayRef {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ids.finish()),
            Arc::new(self.names.finish()),
            Arc::new(self.scores.finish()),
            Arc::new(self.seen.finish()),
        ];
        let labels = StructArray::new(label_fields(), columns, None);
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        let nulls = Some(NullBuffer::from(self.valid)).filter(|nulls| nulls.null_count() > 0);
        Arc::new(ListArray::new(label_item(), offsets, Arc::new(labels), nulls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Label, LabelChange};
    use crate::method::{LexicalConfig, LexicalModel};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Int64Type};
    use arrow_array::{DictionaryArray, Float64Array, LargeStringArray, StringArray};

    fn model() -> LexicalModel {
        let mut model =
            LexicalModel::without_documents(&LexicalConfig::default(), LabelSpace::default()).unwrap();
        let label = |id: &str, name: &str| LabelChange::Add { label: Label::new(id, name) };
        model.apply(&[label("t", "tea trade"), label("r", "rail"), label("b", "bee keeping")]).unwrap();
        model
    }

    fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
            .unwrap()
    }

    fn tag(batch: &RecordBatch, columns: &Columns, k: usize) -> Result<TaggedBatch, PredictError> {
        let model = model();
        let ask = Ask { k, allowed: None };
        BatchTagger { model: &model, columns, ask, threshold: None }.tag(batch, 11)
    }

    /// The ids of the labels, row by row.
    fn labels(tagged: &TaggedBatch) -> Vec<Option<Vec<String>>> {
        let lists = tagged.batch.column_by_name("labels").unwrap().as_list::<i32>();
        let ids = |list: ArrayRef| {
            let ids = list.as_struct().column_by_name("id").unwrap().clone();
            ids.as_string::<i32>().iter().map(|id| id.unwrap().to_owned()).collect()
        };
        lists.iter().map(|list| list.map(ids)).collect()
    }

    fn some(ids: &[&str]) -> Option<Vec<String>> {
        Some(ids.iter().map(|&id| id.to_owned()).collect())
    }

    #[test]
    fn a_row_in_is_a_row_out() {
        let texts: DictionaryArray<Int64Type> =
            [Some("green tea by rail"), None, Some("nothing of the kind"), Some("tea")].into_iter().collect();
        let titles = LargeStringArray::from(vec![None, Some("rail"), None, Some("rail and rail")]);
        let batch = table(vec![
            ("body", Arc::new(texts)),
            ("title", Arc::new(titles)),
            ("key", Arc::new(StringArray::from(vec![Some("a"), Some("b"), None, Some("d")]))),
            ("weight", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0]))),
        ]);
        let columns = Columns {
            id: Some("key".to_owned()),
            text: "body".to_owned(),
            keep: vec!["weight".to_owned(), "body".to_owned()],
            ..Columns::default()
        };
        let tagged = tag(&batch, &columns, 2).unwrap();
        assert_eq!(labels(&tagged), [some(&["r", "t"]), None, some(&[]), some(&["r", "t"])]);
        assert_eq!(tagged.without_text, 1);
        let names: Vec<&String> =
            tagged.batch.schema_ref().fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["id", "weight", "body", "labels"]);
        assert_eq!(tagged.batch.column(0), batch.column(2));
        assert_eq!(tagged.batch.column(2).data_type(), batch.column(0).data_type());
        // Rows in pieces are the same rows.
        for start in 0..3 {
            let part = tag(&batch.slice(start, 2), &columns, 2).unwrap();
            assert_eq!(part.batch, tagged.batch.slice(start, 2));
        }
        let none = tag(&batch.slice(0, 0), &columns, 2).unwrap();
        assert_eq!((none.batch.num_rows(), none.batch.schema()), (0, tagged.batch.schema()));
    }

    #[test]
    fn rows_without_an_id_are_called_by_number_and_thresholds_hold() {
        let batch = table(vec![("text", Arc::new(StringArray::from(vec!["rail", "tea and bee keeping"])))]);
        let tagged = tag(&batch, &Columns::default(), 5).unwrap();
        assert_eq!(tagged.batch.column(0).as_primitive::<Int64Type>().values(), &[11, 12]);
        let (model, columns) = (model(), Columns::default());
        let scores = tagged.batch.column(1).as_list::<i32>().value(1);
        let scores = scores.as_struct().column(2).as_primitive::<Float32Type>().values().to_vec();
        let ask = Ask { k: 5, allowed: None };
        let threshold = Some((scores[0] + scores[1]) / 2.0);
        let tagger = BatchTagger { model: &model, columns: &columns, ask, threshold };
        assert_eq!(labels(&tagger.tag(&batch, 1).unwrap())[1], some(&["b"]));
    }

    #[test]
    fn columns_that_are_not_as_they_should_be_are_named() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["rail"]));
        let number: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let keeping = |name: &str| Columns { keep: vec![name.to_owned()], ..Columns::default() };
        let key = Columns { id: Some("key".to_owned()), keep: vec!["id".to_owned()], ..Columns::default() };
        for (batch, columns, part) in [
            (vec![("body", &text)], Columns::default(), "no column is called \"text\"; there are \"body\""),
            (vec![("text", &number)], Columns::default(), "\"text\" is of type Float64, where text"),
            (vec![("text", &text), ("text", &text)], Columns::default(), "two columns are called \"text\""),
            (
                vec![("text", &text), ("id", &number)],
                Columns::default(),
                "\"id\" is of type Float64, where an id",
            ),
            (vec![("text", &text), ("title", &number)], Columns::default(), "\"title\" is of type Float64"),
            (vec![("text", &text)], keeping("weight"), "no column is called \"weight\""),
            (vec![("text", &text), ("labels", &text)], keeping("labels"), "two columns called \"labels\""),
            (vec![("text", &text), ("key", &text), ("id", &text)], key, "two columns called \"id\""),
        ] {
            let batch = table(batch.into_iter().map(|(name, array)| (name, array.clone())).collect());
            let error = tag(&batch, &columns, 1).unwrap_err();
            assert_eq!(error.fault(), crate::Fault::User);
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
}
