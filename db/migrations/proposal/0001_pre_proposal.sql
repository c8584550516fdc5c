-- The proposal service's tables: proposals, every decision about them, A/B outcomes, model calls.

CREATE TABLE touchpoints (
    touchpoint_id text  PRIMARY KEY,
    revision      int   NOT NULL CHECK (revision >= 1),
    config        jsonb NOT NULL
);

-- Patterns that surfaced, whether or not a proposal was made for them.
CREATE TABLE patterns (
    pattern_id    uuid        PRIMARY KEY,
    touchpoint_id text        NOT NULL,
    workspace_id  uuid,
    title         text        NOT NULL,
    occurrence    int         NOT NULL CHECK (occurrence >= 1),
    automatic     boolean     NOT NULL,
    heard_at      timestamptz NOT NULL DEFAULT now()
);

-- `content` is the JSON document of domain.Content, byte for byte as it was hashed and shown. It is text, not jsonb,
-- because jsonb would reorder it and cannot hold every character that a prompt may have.
CREATE TABLE proposals (
    proposal_id      uuid        PRIMARY KEY,
    touchpoint_id    text        NOT NULL,
    workspace_id     uuid,
    pattern_id       uuid,
    pattern_title    text        NOT NULL DEFAULT '',
    commission       text        NOT NULL,
    state            text        NOT NULL CHECK (state IN (
        'generated', 'in_review', 'approved', 'rejected', 'bad_signals', 'stale', 'failed', 'revised',
        'activating', 'activated', 'rolled_back'
    )),
    author           text        NOT NULL CHECK (author <> ''),
    model            text        NOT NULL,
    base_version_ref text,
    base_sha256      text        NOT NULL CHECK (base_sha256 ~ '^[0-9a-f]{64}$'),
    content_sha256   text        NOT NULL CHECK (content_sha256 ~ '^[0-9a-f]{64}$'),
    content          text        NOT NULL CHECK (content IS JSON OBJECT),
    hunk_count       int         NOT NULL CHECK (hunk_count >= 0),
    evidence_refs    uuid[]      NOT NULL DEFAULT '{}',
    flags            text[]      NOT NULL DEFAULT '{}',
    failure          text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    -- When the ledger last said something about this proposal's version; what is older comes too late.
    version_at       timestamptz,
    CHECK ((state = 'failed') = (failure IS NOT NULL)),
    CHECK (state = 'failed' OR (hunk_count > 0 AND base_sha256 <> content_sha256))
);

CREATE UNIQUE INDEX one_open_proposal_a_pattern ON proposals (pattern_id)
    WHERE state IN ('generated', 'in_review', 'revised', 'approved', 'activating');
CREATE INDEX proposals_newest ON proposals (created_at DESC, proposal_id DESC);
CREATE INDEX proposals_of_touchpoint ON proposals (touchpoint_id, created_at DESC);
CREATE INDEX proposals_of_pattern ON proposals (pattern_id);

-- A reader that names the workspaces it may see (burnish.workspaces, ids with commas) sees those, and the proposals
-- that have none. The service itself, which names none, writes and reads all.
ALTER TABLE proposals ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspaces_named ON proposals USING (
    workspace_id IS NULL
    OR (SELECT coalesce(current_setting('burnish.workspaces', true), '') = '')
    OR workspace_id = ANY (
        (SELECT string_to_array(nullif(current_setting('burnish.workspaces', true), ''), ',')::uuid[])::uuid[]
    )
);

-- Who did what with which text, when and why. Append-only.
CREATE TABLE decisions (
    seq            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    proposal_id    uuid        NOT NULL REFERENCES proposals,
    action         text        NOT NULL CHECK (action IN (
        'created', 'approved', 'rejected', 'bad_signals', 'waived', 'revised', 'stale', 'activated', 'rolled_back'
    )),
    by             text        NOT NULL CHECK (by <> ''),
    reason         text        NOT NULL DEFAULT '',
    content_sha256 text        NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    CHECK (reason <> '' OR action NOT IN ('rejected', 'bad_signals', 'waived'))
);

CREATE INDEX decisions_of_proposal ON decisions (proposal_id, seq);
CREATE UNIQUE INDEX one_approval_a_person_and_text ON decisions (proposal_id, content_sha256, by)
    WHERE action = 'approved';

CREATE FUNCTION decisions_are_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'decisions are append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER decisions_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON decisions
    FOR EACH STATEMENT EXECUTE FUNCTION decisions_are_final();

-- Every A/B run that was heard of for a proposal; which of them counts is told by the hashes.
CREATE TABLE ab_outcomes (
    run_id       uuid        PRIMARY KEY,
    proposal_id  uuid        NOT NULL REFERENCES proposals,
    verdict      text        NOT NULL CHECK (verdict IN ('better', 'worse', 'not_worse', 'undecided', 'failed')),
    suite_sha256 text,
    a_sha256     text        NOT NULL,
    b_sha256     text        NOT NULL,
    gained       int         NOT NULL DEFAULT 0,
    lost         int         NOT NULL DEFAULT 0,
    executed_at  timestamptz NOT NULL
);

CREATE INDEX ab_outcomes_of_proposal ON ab_outcomes (proposal_id, b_sha256, executed_at DESC);

-- Every call of a model, from its start. One without `finished_at` is in flight or was lost. The reply is kept so that
-- a call that was paid for is never paid for again. A proposal's row comes after its calls: no foreign key.
CREATE TABLE model_calls (
    call_id        uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    proposal_id    uuid        NOT NULL,
    touchpoint_id  text        NOT NULL,
    attempt        int         NOT NULL CHECK (attempt >= 1),
    request_sha256 text        NOT NULL,
    provider       text        NOT NULL,
    model          text        NOT NULL,
    free           boolean     NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    input_tokens   int,
    output_tokens  int,
    usd            numeric     CHECK (usd >= 0),
    latency_ms     float8,
    reply          text,
    error          text
);

CREATE INDEX model_calls_of_proposal ON model_calls (proposal_id, attempt);
CREATE INDEX model_calls_of_day ON model_calls (started_at);
