-- The Q&A library's tables, as far as they go: what it knows of touchpoints, its workspaces, and their documents.

CREATE TABLE touchpoints (
    touchpoint_id text PRIMARY KEY,
    scope         text NOT NULL CHECK (scope IN ('global', 'workspace')),
    revision      int  NOT NULL CHECK (revision >= 1)
);

-- `touchpoint_id` names the touchpoint of the workspace's answers: where its reviews and corrections become signals.
CREATE TABLE workspaces (
    id            uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    name          text        NOT NULL UNIQUE CHECK (btrim(name) <> '' AND length(name) <= 200),
    touchpoint_id text        REFERENCES touchpoints,
    created_at    timestamptz NOT NULL DEFAULT now()
);

-- One row per object version in a bucket. A file that fails leaves the version before it live, marked stale.
CREATE TABLE documents (
    id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id   uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    bucket         text        NOT NULL CHECK (bucket <> ''),
    object_key     text        NOT NULL CHECK (object_key <> ''),
    object_version text        NOT NULL,
    content_sha256 text        NOT NULL CHECK (content_sha256 ~ '^[0-9a-f]{64}$'),
    bytes          bigint      NOT NULL CHECK (bytes >= 0),
    media_type     text,
    state          text        NOT NULL CHECK (state IN ('received', 'live', 'stale', 'rejected', 'deleted')),
    rejected       text,
    received_at    timestamptz NOT NULL DEFAULT now(),
    ended_at       timestamptz,
    UNIQUE (workspace_id, bucket, object_key, object_version),
    CHECK ((state = 'rejected') = (rejected IS NOT NULL)),
    CHECK (ended_at >= received_at)
);

-- Late and repeated events of a bucket end in the same rows, and at most one version of an object is served.
CREATE UNIQUE INDEX documents_one_served ON documents (workspace_id, bucket, object_key)
    WHERE state IN ('live', 'stale');

-- A connection sees the workspace it names in `burnish.workspace`, and nothing when it names none.
ALTER TABLE workspaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE workspaces FORCE ROW LEVEL SECURITY;
CREATE POLICY own_workspace ON workspaces
    USING (id = nullif(current_setting('burnish.workspace', true), '')::uuid);

ALTER TABLE documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE documents FORCE ROW LEVEL SECURITY;
CREATE POLICY own_workspace ON documents
    USING (workspace_id = nullif(current_setting('burnish.workspace', true), '')::uuid);
