-- Files that come through the API: a bucket of our own, which each workspace has.

CREATE TABLE uploads (
    workspace_id uuid        NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    object_key   text        NOT NULL CHECK (object_key <> '' AND length(object_key) <= 1000),
    extractor    text        NOT NULL,
    content      bytea       NOT NULL CHECK (octet_length(content) <= 52428800),
    put_at       timestamptz NOT NULL DEFAULT now(),
    followed_at  timestamptz,
    PRIMARY KEY (workspace_id, object_key)
);
CREATE INDEX uploads_waiting ON uploads (put_at) WHERE followed_at IS NULL;
SELECT separate_workspaces('uploads', also_all => false);

-- Pieces of a file that is not whole yet. Forgotten after a day.
CREATE TABLE upload_parts (
    upload_id    uuid        NOT NULL,
    part         int         NOT NULL CHECK (part >= 0),
    workspace_id uuid        NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    content      bytea       NOT NULL CHECK (octet_length(content) <= 2097152),
    came_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, upload_id, part)
);
CREATE INDEX upload_parts_age ON upload_parts (came_at);
SELECT separate_workspaces('upload_parts', also_all => false);

-- When the report beside a source was written; a version without one has none yet.
ALTER TABLE documents ADD COLUMN reported_at timestamptz;
