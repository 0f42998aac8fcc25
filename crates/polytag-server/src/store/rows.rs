//! Labels as rows of a table, and back: what a model must change to have the labels that the table has.

use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use polytag::data::{Label, LabelChange, LabelSpace};
use polytag::ids::LabelId;
use polytag::predict::Embeddings;
use tokio_postgres::Row as Columns;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::error::StoreError;

/// A vector as pgvector has it: how many numbers, two bytes of nothing, the numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Vector(pub(super) Vec<f32>);

impl ToSql for Vector {
    fn to_sql(&self, _: &Type, to: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        to.put_u16(u16::try_from(self.0.len())?);
        to.put_u16(0);
        self.0.iter().for_each(|number| to.put_f32(*number));
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        kind.name() == "vector"
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Vector {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Vector, Box<dyn Error + Sync + Send>> {
        let numbers = raw.get(4..).unwrap_or_default();
        let told = raw.first_chunk().map_or(0, |told| u16::from_be_bytes(*told));
        if raw.len() < 4 || numbers.len() != usize::from(told) * 4 {
            return Err(format!("a vector of {told} numbers in {} bytes", raw.len()).into());
        }
        let number = |bytes: &[u8]| f32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(Vector(numbers.chunks_exact(4).map(number).collect()))
    }

    fn accepts(kind: &Type) -> bool {
        kind.name() == "vector"
    }
}

/// A label at its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) position: i32,
    pub(super) label: Label,
    pub(super) removed: bool,
    pub(super) vector: Option<Vector>,
}

/// The columns of a [`Row`], in order.
pub(super) const COLUMNS: &str = "position, id, name, description, aliases, parents, removed, embedding";

impl Row {
    pub(super) fn read(columns: &Columns) -> Result<Row, tokio_postgres::Error> {
        Ok(Row {
            position: columns.try_get(0)?,
            label: Label {
                id: columns.try_get(1)?,
                name: columns.try_get(2)?,
                description: columns.try_get(3)?,
                aliases: columns.try_get(4)?,
                parents: columns.try_get(5)?,
            },
            removed: columns.try_get(6)?,
            vector: columns.try_get(7)?,
        })
    }

    /// The label at a position, with its vector if there is one.
    pub(super) fn of(space: &LabelSpace, label: LabelId, vectors: &Embeddings) -> Row {
        let removed = !space.is_active(label);
        let vector = vectors.of(label).filter(|_| !removed).map(|numbers| Vector(numbers.to_vec()));
        Row { position: label.0 as i32, label: space.label(label).clone(), removed, vector }
    }
}

/// The id of the first label with text that PostgreSQL cannot hold.
pub(super) fn with_zero_byte(changes: &[LabelChange]) -> Option<&str> {
    let has_zero = |text: &str| text.contains('\0');
    let holds = |change: &&LabelChange| match change {
        LabelChange::Add { label } => label_holds_zero(label),
        LabelChange::Rename { name, .. } => has_zero(name),
        LabelChange::Describe { description, .. } => description.as_deref().is_some_and(has_zero),
        LabelChange::Remove { .. } => false,
    };
    changes.iter().find(holds).map(LabelChange::id)
}

/// Whether a label has text that PostgreSQL cannot hold.
pub(super) fn label_holds_zero(label: &Label) -> bool {
    let texts = [&label.id, &label.name].into_iter().chain(&label.description);
    texts.chain(&label.aliases).chain(&label.parents).any(|text| text.contains('\0'))
}

/// What `space` must change to be as `rows` say, which are by position; and the vectors they have, of `dim` numbers each
/// where the model has such. Positions become the same as in the table.
pub(super) fn difference(
    space: &LabelSpace,
    rows: &[Row],
    dim: Option<usize>,
) -> Result<(Vec<LabelChange>, Embeddings), StoreError> {
    let unfit = |row: &Row, problem: &str| StoreError::Unfit {
        problem: format!("the label {:?} at position {} {problem}", row.label.id, row.position),
    };
    let (mut changes, mut next) = (Vec::new(), space.positions());
    let mut vectors = Embeddings::new(dim.unwrap_or_default());
    for row in rows {
        let position = usize::try_from(row.position).map_err(|_| unfit(row, "has no position"))?;
        let at = LabelId::from_index(position);
        let id = || row.label.id.clone();
        if position >= next {
            if position > next {
                return Err(unfit(row, "comes after one that is missing"));
            }
            next += 1;
            changes.push(LabelChange::Add { label: row.label.clone() });
            changes.extend(row.removed.then(|| LabelChange::Remove { id: id() }));
        } else {
            let known = space.label(at);
            let same = (&known.id, &known.aliases, &known.parents)
                == (&row.label.id, &row.label.aliases, &row.label.parents);
            match (space.is_active(at), row.removed) {
                _ if !same => return Err(unfit(row, "is another than here")),
                (false, true) => {}
                (true, true) => changes.push(LabelChange::Remove { id: id() }),
                (false, false) => return Err(unfit(row, "was removed here")),
                (true, false) => {
                    let Label { name, description, .. } = &row.label;
                    let other = (known.name != *name, known.description != *description);
                    changes.extend(other.0.then(|| LabelChange::Rename { id: id(), name: name.clone() }));
                    let description = description.clone();
                    changes.extend(other.1.then(|| LabelChange::Describe { id: id(), description }));
                }
            }
        }
        if let (Some(dim), Some(Vector(numbers)), false) = (dim, &row.vector, row.removed) {
            check(&row.label, numbers, dim)?;
            vectors.push(at, numbers);
        }
    }
    space.changed(&changes).map_err(|(_, error)| StoreError::Unfit { problem: error.to_string() })?;
    Ok((changes, vectors))
}

fn check(label: &Label, numbers: &[f32], dim: usize) -> Result<(), StoreError> {
    let what = format!("the label {:?}", label.id);
    if numbers.len() != dim {
        return Err(StoreError::Dimension { what, found: numbers.len(), expected: dim });
    }
    match numbers.iter().all(|number| number.is_finite()) {
        true => Ok(()),
        false => Err(StoreError::Unfit { problem: format!("the vector of {what} holds what is no number") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(ids: &[&str]) -> LabelSpace {
        let mut space = LabelSpace::default();
        for id in ids {
            space.add(Label::new(*id, id.to_uppercase())).unwrap();
        }
        space
    }

    fn row(position: i32, id: &str, name: &str) -> Row {
        Row { position, label: Label::new(id, name), removed: false, vector: None }
    }

    #[test]
    fn a_vector_is_the_same_after_it_was_sent() {
        let vector = Vector(vec![0.5, -1.25, 3e-9]);
        let mut bytes = BytesMut::new();
        let kind = Type::new("vector".into(), 1, tokio_postgres::types::Kind::Simple, "public".into());
        vector.to_sql(&kind, &mut bytes).unwrap();
        assert_eq!(bytes.len(), 4 + 12);
        assert_eq!(Vector::from_sql(&kind, &bytes).unwrap(), vector);
        for cut in [0, 3, 5, 15] {
            assert!(Vector::from_sql(&kind, &bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn rows_become_changes_that_leave_the_same_labels_at_the_same_positions() {
        let before = space(&["a", "b", "c"]);
        let gone = |row: Row| Row { removed: true, ..row };
        let described = Row {
            label: Label { description: Some("more".into()), ..Label::new("b", "B") },
            ..row(1, "b", "B")
        };
        let rows = [
            gone(row(0, "a", "A")),
            described,
            row(2, "c", "other"),
            gone(row(3, "a", "again")),
            row(4, "a", "at last"),
        ];
        let (changes, vectors) = difference(&before, &rows, None).unwrap();
        assert!(vectors.is_empty());
        let (after, _) = before.changed(&changes).unwrap();
        assert_eq!(after.positions(), 5);
        let found: Vec<Row> = (0..5).map(|at| Row::of(&after, LabelId(at), &Embeddings::default())).collect();
        assert_eq!(found, rows);
        // Once more changes nothing.
        assert!(difference(&after, &rows, None).unwrap().0.is_empty());
    }

    #[test]
    fn rows_that_do_not_fit_are_told() {
        let mut before = space(&["a", "b"]);
        before.remove("b").unwrap();
        let problem = |rows: &[Row]| difference(&before, rows, Some(2)).unwrap_err().to_string();
        assert!(problem(&[row(0, "x", "A")]).contains("another than here"));
        assert!(problem(&[row(1, "b", "B")]).contains("was removed here"));
        assert!(problem(&[row(3, "d", "D")]).contains("one that is missing"));
        assert!(problem(&[row(2, "a", "A")]).contains("is there already"));
        let with = |numbers: &[f32]| Row { vector: Some(Vector(numbers.to_vec())), ..row(0, "a", "A") };
        assert!(problem(&[with(&[1.0])]).contains("1 numbers in the vector of the label \"a\""));
        assert!(problem(&[with(&[1.0, f32::NAN])]).contains("no number"));
        let (changes, vectors) = difference(&before, &[with(&[1.0, 2.0])], Some(2)).unwrap();
        assert_eq!((changes.len(), vectors.of(LabelId(0))), (0, Some(&[1.0, 2.0][..])));
    }
}
