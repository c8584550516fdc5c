-- The A/B runner: suites and their cases, runs and their shards, every answer a model was paid for, baselines.

CREATE TABLE touchpoints (
    touchpoint_id text  PRIMARY KEY,
    revision      int   NOT NULL,
    config        jsonb NOT NULL
);

-- A suite is named by the hash of its content. Older ones stay, so that a run of last year can still be read.
CREATE TABLE suites (
    touchpoint_id text        NOT NULL,
    suite_sha256  text        NOT NULL CHECK (suite_sha256 ~ '^[0-9a-f]{64}$'),
    is_current    boolean     NOT NULL,
    cases         int         NOT NULL,
    dev_cases     int         NOT NULL,
    test_cases    int         NOT NULL,
    labels        int         NOT NULL,
    imported_by   text        NOT NULL,
    imported_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (touchpoint_id, suite_sha256)
);

CREATE UNIQUE INDEX suites_one_current ON suites (touchpoint_id) WHERE is_current;

CREATE TABLE cases (
    suite_sha256 text NOT NULL,
    case_id      text NOT NULL,
    split        text NOT NULL CHECK (split IN ('dev', 'test')),
    input        text NOT NULL,
    input_sha256 text NOT NULL,
    expected     text NOT NULL,
    cluster      text,
    PRIMARY KEY (suite_sha256, case_id)
);

-- Cases are dealt in the order of their input's hash: as good as random, the same for every run of a suite.
CREATE INDEX cases_dealt ON cases (suite_sha256, split, input_sha256, case_id);

-- What every run needs to be the same again: texts, suite, model, parameters and how it is judged.
CREATE TABLE runs (
    run_id          uuid        PRIMARY KEY,
    kind            text        NOT NULL CHECK (kind IN ('ab', 'eval')),
    touchpoint_id   text        NOT NULL,
    workspace_id    uuid,
    proposal_id     uuid,
    baseline_id     uuid,
    variant_a       jsonb       NOT NULL,
    variant_b       jsonb       NOT NULL,
    a_sha256        text        NOT NULL,
    b_sha256        text        NOT NULL,
    suite_sha256    text,
    split           text        NOT NULL CHECK (split IN ('dev', 'test')),
    cases           int         NOT NULL DEFAULT 0,
    suite_settings  jsonb       NOT NULL,
    model_settings  jsonb       NOT NULL,
    model           text        NOT NULL DEFAULT '',
    params_sha256   text        NOT NULL DEFAULT '',
    status          text        NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    outcome         jsonb,
    error           text,
    requested_by    text        NOT NULL,
    requested_at    timestamptz NOT NULL,
    finished_at     timestamptz,
    CHECK ((status = 'completed') = (outcome IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL)),
    CHECK ((status = 'running') = (finished_at IS NULL))
);

CREATE INDEX runs_newest ON runs (requested_at DESC, run_id);
CREATE INDEX runs_of_proposal ON runs (proposal_id) WHERE proposal_id IS NOT NULL;
CREATE INDEX runs_of_text_b ON runs (touchpoint_id, b_sha256) WHERE status = 'completed';
CREATE INDEX runs_of_text_a ON runs (touchpoint_id, a_sha256) WHERE status = 'completed';

-- One variant with some of the cases. `answered` counts as answers come in, for whoever watches.
CREATE TABLE shards (
    run_id        uuid    NOT NULL REFERENCES runs,
    shard         int     NOT NULL,
    variant       text    NOT NULL CHECK (variant IN ('a', 'b')),
    prompt_sha256 text    NOT NULL,
    case_ids      text[]  NOT NULL,
    answered      int     NOT NULL DEFAULT 0,
    model_calls   int     NOT NULL DEFAULT 0,
    usd           numeric NOT NULL DEFAULT 0,
    done_at       timestamptz,
    PRIMARY KEY (run_id, shard)
);

-- Every answer that was ever paid for. The key is all that an answer depends on.
CREATE TABLE results (
    prompt_sha256 text        NOT NULL,
    model         text        NOT NULL,
    params_sha256 text        NOT NULL,
    repeat        smallint    NOT NULL DEFAULT 0,
    input_sha256  text        NOT NULL,
    output        text,
    usd           numeric     NOT NULL,
    latency_ms    real        NOT NULL,
    answered_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (prompt_sha256, model, params_sha256, repeat, input_sha256)
);

-- Append-only. The baseline that holds is the one with the newest `holds_since`; a row without a run says that none
-- holds. Order of arrival does not matter, so an activation and its rollback may be heard in either order.
CREATE TABLE baselines (
    baseline_id    uuid        PRIMARY KEY,
    touchpoint_id  text        NOT NULL,
    workspace_id   uuid,
    run_id         uuid        REFERENCES runs,
    variant        jsonb,
    content_sha256 text        NOT NULL,
    suite_sha256   text,
    metrics        jsonb       NOT NULL DEFAULT '{}',
    promoted_by    text        NOT NULL,
    holds_since    timestamptz NOT NULL,
    recorded_at    timestamptz NOT NULL DEFAULT now(),
    CHECK ((run_id IS NULL) = (variant IS NULL))
);

CREATE INDEX baselines_newest ON baselines (touchpoint_id, workspace_id, holds_since DESC);

-- One row per metric that fell below its baseline by more than its variance band.
CREATE TABLE eval_regression_events (
    run_id        uuid             NOT NULL REFERENCES runs,
    metric        text             NOT NULL,
    touchpoint_id text             NOT NULL,
    workspace_id  uuid,
    baseline_id   uuid             NOT NULL REFERENCES baselines,
    baseline      double precision NOT NULL,
    value         double precision NOT NULL,
    delta         double precision NOT NULL,
    band          double precision NOT NULL,
    severity      text             NOT NULL CHECK (severity IN ('critical', 'high', 'medium', 'low')),
    version_ref   text,
    created_at    timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, metric)
);
