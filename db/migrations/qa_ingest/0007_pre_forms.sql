-- Forms on their way: as they were sent until they are matched, and filled until they are fetched or expire.
-- Nothing refers to them and they refer to nothing, so that they go without a trace.
CREATE TABLE forms (
    form_id      uuid        PRIMARY KEY,
    -- Always said; not NOT NULL, as in every table that the service itself sees whole, so as to let go what expired.
    workspace_id uuid,
    asked_by     text        NOT NULL CHECK (length(asked_by) <= 2000),
    content_type text        NOT NULL DEFAULT '',
    sha256       text        NOT NULL DEFAULT '',
    expires_at   timestamptz NOT NULL
);
CREATE INDEX forms_expired ON forms (expires_at);
CREATE INDEX forms_of ON forms (asked_by);

CREATE TABLE form_parts (
    form_id      uuid  NOT NULL REFERENCES forms ON DELETE CASCADE,
    side         text  NOT NULL CHECK (side IN ('sent', 'filled')),
    ordinal      int   NOT NULL CHECK (ordinal >= 0),
    workspace_id uuid,
    content      bytea NOT NULL CHECK (length(content) <= 1048576),
    PRIMARY KEY (form_id, side, ordinal)
);

SELECT separate_workspaces('forms');
SELECT separate_workspaces('form_parts');
