-- The pattern detector: its projection of signals, the patterns it found in them, and what it judges them by.

-- The gates of each touchpoint, from its configuration.
CREATE TABLE thresholds (
    touchpoint_id         text    PRIMARY KEY,
    revision              int     NOT NULL,
    min_evidence          int     NOT NULL,
    single_actor_evidence int     NOT NULL,
    min_actors            int     NOT NULL,
    auto_human_actors     int     NOT NULL,
    auto_machine_cases    int     NOT NULL,
    max_open_patterns     int     NOT NULL,
    -- Whether a scanner feeds the touchpoint: only then is it asked whether evidence still exists.
    scanned               boolean NOT NULL
);

-- Signals as the detector needs them. Seeing one again only moves last_seen.
CREATE TABLE signals (
    signal_id     uuid        PRIMARY KEY,
    touchpoint_id text        NOT NULL,
    workspace_id  uuid,
    signal_type   text        NOT NULL,
    severity      text        NOT NULL,
    evidence_ref  jsonb       NOT NULL,
    -- The distinct case or item that the evidence is about.
    item          text        NOT NULL,
    text          text        NOT NULL DEFAULT '',
    reason        text        NOT NULL DEFAULT '',
    expected      text,
    got           text,
    -- The payload fields that the categorical strategy groups by: {"category": …, "domain": …}.
    fields        jsonb       NOT NULL DEFAULT '{}',
    actor_id      text        NOT NULL,
    actor_kind    text        NOT NULL,
    version_ref   text,
    source_key    text        NOT NULL,
    first_seen    timestamptz NOT NULL,
    last_seen     timestamptz NOT NULL,
    received_at   timestamptz NOT NULL,
    processed_run uuid,
    -- Why the signal does not count now; NULL when it does.
    left_out      text        CHECK (left_out IN ('bad_signals', 'unresolvable')),
    transitions   int         NOT NULL DEFAULT 0,
    checked_at    timestamptz,
    -- The name of the model that made the vector. Vectors of different models are never compared.
    model         text,
    embedding     vector(1024),
    CHECK ((model IS NULL) = (embedding IS NULL))
);

-- How many `signal.created` took effect, by touchpoint: what a reconciliation with the normaliser compares with.
CREATE TABLE intake (
    touchpoint_id text   PRIMARY KEY,
    heard         bigint NOT NULL CHECK (heard > 0)
);

CREATE INDEX signals_recent ON signals (touchpoint_id, last_seen DESC, signal_id);
CREATE INDEX signals_unprocessed ON signals (touchpoint_id, received_at)
    WHERE processed_run IS NULL AND left_out IS NULL;
CREATE INDEX signals_by_actor ON signals (touchpoint_id, actor_id);
-- A light graph: the default one takes three quarters of the time that a signal takes to come in.
CREATE INDEX signals_embedding ON signals USING hnsw (embedding vector_cosine_ops) WITH (m = 8, ef_construction = 32);

-- One run of the detector over one touchpoint.
CREATE TABLE runs (
    run_id        uuid        PRIMARY KEY,
    touchpoint_id text        NOT NULL,
    request_id    uuid        UNIQUE,
    trigger       text        NOT NULL CHECK (trigger IN ('requested', 'arrivals', 'refresh')),
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL,
    signals       int         NOT NULL,
    processed     int         NOT NULL,
    rejected      int         NOT NULL,
    patterns      int         NOT NULL,
    detected      int         NOT NULL,
    changed       int         NOT NULL
);

CREATE INDEX runs_newest ON runs (touchpoint_id, finished_at DESC);

-- Touchpoints whose pool changed without a new signal (evidence was taken out), to be run again.
CREATE TABLE reruns (
    touchpoint_id text        PRIMARY KEY,
    since         timestamptz NOT NULL
);

-- Patterns, surfaced (state) or still below the gates (no state). The id never changes.
CREATE TABLE patterns (
    pattern_id     uuid             PRIMARY KEY,
    touchpoint_id  text             NOT NULL,
    workspace_id   uuid,
    strategy       text             NOT NULL,
    -- What a categorical pattern is recognised by; a text pattern is recognised by its evidence.
    key            text,
    title          text             NOT NULL,
    expected       text,
    got            text,
    state          text             CHECK (state IN ('new', 'growing', 'steady', 'receding', 'resolved', 'reopened')),
    occurrence     int              NOT NULL,
    automatic      boolean          NOT NULL,
    evidence_count int              NOT NULL,
    actors         int              NOT NULL,
    human_actors   int              NOT NULL,
    machine_cases  int              NOT NULL,
    score          double precision NOT NULL,
    score_parts    jsonb            NOT NULL,
    first_seen     timestamptz      NOT NULL,
    last_seen      timestamptz      NOT NULL,
    judged_count   int              NOT NULL,
    judged_at      timestamptz      NOT NULL,
    updated_run    uuid             NOT NULL,
    model          text,
    centroid       vector(1024)
);

CREATE UNIQUE INDEX patterns_by_key ON patterns (touchpoint_id, workspace_id, strategy, key) NULLS NOT DISTINCT
    WHERE key IS NOT NULL;
CREATE INDEX patterns_top ON patterns (touchpoint_id, score DESC) WHERE state IS NOT NULL;
CREATE INDEX patterns_since ON patterns (last_seen) WHERE state IS NOT NULL;

-- A signal is evidence of one pattern at most. Rows of signals that no longer count stay, not live.
CREATE TABLE pattern_evidence (
    signal_id  uuid             PRIMARY KEY REFERENCES signals ON DELETE CASCADE,
    pattern_id uuid             NOT NULL REFERENCES patterns ON DELETE CASCADE,
    weight     double precision NOT NULL,
    strength   double precision NOT NULL,
    live       boolean          NOT NULL
);

CREATE INDEX pattern_evidence_strongest ON pattern_evidence (pattern_id, strength DESC);

-- Every change of a pattern's state; append-only.
CREATE TABLE pattern_history (
    pattern_id     uuid             NOT NULL REFERENCES patterns ON DELETE CASCADE,
    run_id         uuid             NOT NULL,
    from_state     text,
    to_state       text             NOT NULL,
    evidence_count int              NOT NULL,
    score          double precision NOT NULL,
    at             timestamptz      NOT NULL,
    PRIMARY KEY (pattern_id, run_id)
);

-- What was live when, and how often it was served: for judging whether an activation helped.
CREATE TABLE activations (
    activation_id uuid        PRIMARY KEY,
    touchpoint_id text        NOT NULL,
    workspace_id  uuid,
    kind          text        NOT NULL CHECK (kind IN ('activated', 'rolled_back')),
    version_ref   text        NOT NULL,
    previous_ref  text,
    proposal_id   uuid,
    at            timestamptz NOT NULL
);

CREATE INDEX activations_by_time ON activations (touchpoint_id, at);

CREATE TABLE exposures (
    exposure_id   uuid        PRIMARY KEY,
    touchpoint_id text        NOT NULL,
    workspace_id  uuid,
    version_ref   text        NOT NULL,
    count         bigint      NOT NULL,
    window_start  timestamptz NOT NULL,
    window_end    timestamptz NOT NULL
);

CREATE INDEX exposures_by_time ON exposures (touchpoint_id, version_ref, window_start);
