//! What can be wrong with a store of labels, each with its remedy. No message names a password or a machine.

use std::time::Duration;

use tokio_postgres::error::{DbError, SqlState};

/// Why a store of labels cannot be used, or not now.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nobody answers, or nobody who may write.
    #[error("the database of labels cannot be reached: {problem}")]
    Away {
        /// What was said.
        problem: String,
    },
    /// It takes too long; nothing was changed.
    #[error("the database of labels did not answer in {seconds} seconds")]
    Late {
        /// How long it was waited for.
        seconds: f64,
    },
    /// Another server holds the labels for too long; nothing was changed.
    #[error("another server is changing these labels")]
    Busy,
    /// The change was sent, and nobody said whether it holds.
    #[error(
        "the database of labels did not confirm the change ({problem}): it may hold or not; look at the label before asking again"
    )]
    Unsure {
        /// What came instead.
        problem: String,
    },
    /// The database does not let us in, or not that far.
    #[error("the database of labels refuses: {problem}; {remedy}")]
    Denied {
        /// What was said.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// There is no pgvector.
    #[error(
        "the database of labels has no pgvector ({problem}); install it beside PostgreSQL (Debian: postgresql-NN-pgvector) and have an \
         administrator say CREATE EXTENSION vector in the database"
    )]
    NoVector {
        /// What was said.
        problem: String,
    },
    /// There are no labels of this model yet.
    #[error(
        "the database holds no labels of {model:?} yet; start one server with --create to put them there"
    )]
    NotCreated {
        /// The model.
        model: String,
    },
    /// There is no graph to search labels by.
    #[error(
        "the database has no index to search the labels of {model:?} by; start one server with --create and --label-search database"
    )]
    NotIndexed {
        /// The model.
        model: String,
    },
    /// The tables are of a later time.
    #[error(
        "the tables of labels are of version {found}, and this program reads up to {known}; update polytag"
    )]
    Newer {
        /// Their version.
        found: i32,
        /// Ours.
        known: i32,
    },
    /// The labels in the database belong to another model.
    #[error(
        "the labels of {model:?} in the database belong to another model (its manifest has the SHA-256 {found}, this one {expected}); serve \
         the folder they were made for, or serve this one under another name, as NAME=FOLDER with --create"
    )]
    Another {
        /// The model.
        model: String,
        /// What it is there.
        found: String,
        /// What it is here.
        expected: String,
    },
    /// Vectors of another length.
    #[error(
        "the database has {found} numbers in the vector of {what}, and this model makes {expected}; serve the model that they were made \
         with, or restore the table from a copy"
    )]
    Dimension {
        /// Of what.
        what: String,
        /// There.
        found: usize,
        /// Here.
        expected: usize,
    },
    /// The model folder knows changes that the database does not.
    #[error(
        "{folder}: holds {changes} changes of labels of its own, which are not those that the database began with; serve it without \
         --labels, or move its labels.log and labels.snapshot away to leave them out"
    )]
    OwnChanges {
        /// The folder.
        folder: String,
        /// How many.
        changes: usize,
    },
    /// What is there does not fit.
    #[error("the labels in the database do not fit the model: {problem}; restore the tables from a copy")]
    Unfit {
        /// What is wrong.
        problem: String,
    },
    /// A setting that cannot be.
    #[error("{setting}: {problem}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Anything else that a database says.
    #[error("the database of labels failed: {problem}")]
    Database {
        /// What it said.
        problem: String,
    },
    /// The model refused.
    #[error(transparent)]
    Model(#[from] polytag::Error),
}

impl StoreError {
    /// For what was not done in time.
    pub(super) fn late(limit: Duration) -> StoreError {
        StoreError::Late { seconds: limit.as_secs_f64() }
    }

    /// Whether the same may succeed later, without anybody doing anything about the request.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, StoreError::Away { .. } | StoreError::Late { .. } | StoreError::Busy)
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> StoreError {
        match error.as_db_error() {
            Some(said) => of_database(said),
            None => StoreError::Away { problem: causes(&error) },
        }
    }
}

/// An error with its causes, which the client leaves to be asked for.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// What a database's refusal means.
fn of_database(said: &DbError) -> StoreError {
    let problem = said.message().to_owned();
    let code = said.code();
    let denied = |remedy| StoreError::Denied { problem: problem.clone(), remedy };
    match code {
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            denied("give the right user and password, as PGPASSWORD or in labels_password_file")
        }
        &SqlState::UNDEFINED_DATABASE => denied("name a database that there is, or make it with createdb"),
        &SqlState::INSUFFICIENT_PRIVILEGE => denied(
            "the user must be the owner of the schema polytag, or be granted what docs/postgres.md lists",
        ),
        &SqlState::LOCK_NOT_AVAILABLE => StoreError::Busy,
        &SqlState::UNDEFINED_FILE => StoreError::NoVector { problem },
        &SqlState::FEATURE_NOT_SUPPORTED | &SqlState::UNDEFINED_OBJECT
            if problem.contains("extension") || problem.contains("vector") =>
        {
            StoreError::NoVector { problem }
        }
        &SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN | &SqlState::INVALID_SCHEMA_NAME => {
            StoreError::Unfit { problem }
        }
        // A replica, or a server that starts, ends or has no room.
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::Away { problem },
        code if ["57P", "53", "08", "25P03"].iter().any(|class| code.code().starts_with(class)) => {
            StoreError::Away { problem }
        }
        code => StoreError::Database { problem: format!("{problem} ({})", code.code()) },
    }
}
