CREATE SCHEMA IF NOT EXISTS polytag;

CREATE TABLE polytag.store (version integer NOT NULL);
COMMENT ON TABLE polytag.store IS 'The version of these tables, one row.';
INSERT INTO polytag.store VALUES (1);

CREATE TABLE polytag.models (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    key text NOT NULL,
    dimension integer,
    fitted integer NOT NULL,
    own_changes text NOT NULL,
    revision bigint NOT NULL,
    chain bytea NOT NULL,
    created timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE polytag.models IS 'Models whose labels are kept here. Whoever changes labels holds the row.';
COMMENT ON COLUMN polytag.models.name IS 'What it is called in addresses: servers of one name share labels.';
COMMENT ON COLUMN polytag.models.key IS 'The SHA-256 of its manifest.';
COMMENT ON COLUMN polytag.models.dimension IS 'How many numbers the vector of a label has; none where labels have no vectors.';
COMMENT ON COLUMN polytag.models.fitted IS 'How many positions it was fitted with.';
COMMENT ON COLUMN polytag.models.own_changes IS 'The SHA-256 of the changes that the model folder held when this was made.';
COMMENT ON COLUMN polytag.models.revision IS 'The last change.';
COMMENT ON COLUMN polytag.models.chain IS 'The SHA-256 of the last change and all before it.';

CREATE TABLE polytag.labels (
    model integer NOT NULL REFERENCES polytag.models ON DELETE CASCADE,
    position integer NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    description text,
    aliases text[] NOT NULL,
    parents text[] NOT NULL,
    removed boolean NOT NULL,
    embedding vector,
    revision bigint NOT NULL,
    PRIMARY KEY (model, position)
);
COMMENT ON TABLE polytag.labels IS 'Every label as it is; a removed one keeps its position.';
COMMENT ON COLUMN polytag.labels.revision IS 'The change that wrote the row; 0 for a label as it was fitted.';
-- Of the id, its digest: ids of fitted labels may be longer than an index takes.
CREATE UNIQUE INDEX labels_by_id ON polytag.labels (model, md5(id)) WHERE NOT removed;
CREATE INDEX labels_by_revision ON polytag.labels (model, revision);

CREATE TABLE polytag.changes (
    model integer NOT NULL REFERENCES polytag.models ON DELETE CASCADE,
    revision bigint NOT NULL,
    chain bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    by text NOT NULL,
    changes jsonb NOT NULL,
    PRIMARY KEY (model, revision)
);
COMMENT ON TABLE polytag.changes IS 'What was changed together, in the order of commits, without gaps; old ones are dropped.';
