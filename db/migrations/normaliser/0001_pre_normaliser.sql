-- The normaliser's tables: what it knows of touchpoints, and the signals.

CREATE TABLE touchpoints (
    touchpoint_id text PRIMARY KEY,
    scope         text NOT NULL CHECK (scope IN ('global', 'workspace')),
    revision      int  NOT NULL CHECK (revision >= 1)
);

-- How many observations took effect, by touchpoint: what a reconciliation of accepted against stored compares with.
CREATE TABLE intake (
    touchpoint_id text   PRIMARY KEY,
    observed      bigint NOT NULL CHECK (observed > 0)
);

-- One row a signal. A signal that does not count stays, with the reason; `transitions` counts its rejections.
-- `judged_scope` is the scope that its touchpoint had when it was judged: where the two differ, it is judged again.
CREATE TABLE prompt_quality_signals (
    id            uuid        PRIMARY KEY,
    touchpoint_id text        NOT NULL,
    signal_type   text        NOT NULL,
    severity      text        NOT NULL,
    evidence_ref  jsonb       NOT NULL,
    payload       jsonb       NOT NULL,
    workspace_id  uuid,
    created_at    timestamptz NOT NULL DEFAULT now(),
    processed_at  timestamptz,
    first_seen    timestamptz NOT NULL,
    last_seen     timestamptz NOT NULL,
    actor_id      text        NOT NULL CHECK (actor_id <> ''),
    actor_kind    text        NOT NULL CHECK (actor_kind IN ('human', 'machine')),
    version_ref   text,
    source_key    text        NOT NULL CHECK (source_key <> ''),
    judged_scope  text        NOT NULL CHECK (judged_scope IN ('unknown', 'global', 'workspace')),
    rejected      text        CHECK (rejected IN ('invalid', 'unknown_touchpoint', 'scope')),
    reject_detail text,
    transitions   int         NOT NULL DEFAULT 0 CHECK (transitions >= 0),
    CHECK (signal_type IN ('flag', 'eval_regression', 'governance_finding', 'low_confidence', 'human_edit')),
    CHECK (severity IN ('critical', 'high', 'medium', 'low')),
    CHECK (first_seen <= last_seen),
    CHECK (jsonb_typeof(evidence_ref) = 'object' AND evidence_ref ? 'source'),
    CHECK (jsonb_typeof(payload) = 'object'),
    -- A signal that counts has a workspace exactly when its touchpoint is a workspace touchpoint.
    CONSTRAINT workspace_fits_scope CHECK (
        rejected IS NOT NULL
        OR (judged_scope = 'workspace' AND workspace_id IS NOT NULL)
        OR (judged_scope = 'global' AND workspace_id IS NULL)
    ),
    CONSTRAINT one_signal_a_source_key UNIQUE NULLS NOT DISTINCT (touchpoint_id, workspace_id, source_key)
);

CREATE INDEX idx_quality_signals_touchpoint ON prompt_quality_signals (touchpoint_id, created_at DESC, id DESC);
CREATE INDEX idx_quality_signals_unprocessed ON prompt_quality_signals (touchpoint_id) WHERE processed_at IS NULL;
CREATE INDEX idx_quality_signals_newest ON prompt_quality_signals (created_at DESC, id DESC);
CREATE INDEX idx_quality_signals_judged ON prompt_quality_signals (touchpoint_id, judged_scope);

-- A reader that names the workspaces it may see (burnish.workspaces, ids with commas) sees those, and the signals
-- that have none. The service itself, which names none, writes and reads all.
ALTER TABLE prompt_quality_signals ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspaces_named ON prompt_quality_signals USING (
    workspace_id IS NULL
    OR (SELECT coalesce(current_setting('burnish.workspaces', true), '') = '')
    OR workspace_id = ANY (
        (SELECT string_to_array(nullif(current_setting('burnish.workspaces', true), ''), ',')::uuid[])::uuid[]
    )
);
