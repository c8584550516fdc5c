-- The scanner's tables: the sources of each touchpoint, how far each has been read, and every run.

CREATE TABLE touchpoints (
    touchpoint_id text  PRIMARY KEY,
    revision      int   NOT NULL CHECK (revision >= 1),
    config        jsonb NOT NULL
);

-- One row a source. `lease` belongs to the replica that runs it, until `leased_until`.
CREATE TABLE sources (
    touchpoint_id text             NOT NULL REFERENCES touchpoints,
    name          text             NOT NULL,
    scanner       text             NOT NULL,
    scope         text             NOT NULL CHECK (scope IN ('global', 'workspace')),
    options       jsonb            NOT NULL,
    every_s       double precision NOT NULL CHECK (every_s > 0),
    enabled       boolean          NOT NULL DEFAULT true,
    next_run_at   timestamptz      NOT NULL DEFAULT now(),
    requested_at  timestamptz,
    failures      int              NOT NULL DEFAULT 0,
    lease         uuid             UNIQUE,
    leased_at     timestamptz,
    leased_until  timestamptz,
    PRIMARY KEY (touchpoint_id, name)
);

CREATE INDEX sources_due ON sources (next_run_at) WHERE enabled;

-- Rows up to (read_to, row_id) have been read and said.
CREATE TABLE watermarks (
    touchpoint_id text        NOT NULL,
    source        text        NOT NULL,
    read_to       timestamptz NOT NULL,
    row_id        text        NOT NULL,
    PRIMARY KEY (touchpoint_id, source),
    FOREIGN KEY (touchpoint_id, source) REFERENCES sources (touchpoint_id, name) ON DELETE CASCADE
);

-- Rows that were said and may be read again, since they changed after the watermark.
CREATE TABLE recent_rows (
    touchpoint_id text        NOT NULL,
    source        text        NOT NULL,
    changed_at    timestamptz NOT NULL,
    row_key       text        NOT NULL,
    PRIMARY KEY (touchpoint_id, source, changed_at, row_key)
);

CREATE TABLE scan_runs (
    run_id          uuid             PRIMARY KEY,
    touchpoint_id   text             NOT NULL,
    scanner         text             NOT NULL,
    started_at      timestamptz      NOT NULL,
    duration_ms     double precision NOT NULL CHECK (duration_ms >= 0),
    signals_emitted int              NOT NULL CHECK (signals_emitted >= 0),
    ok              boolean          NOT NULL,
    error           text,
    CHECK (ok = (error IS NULL))
);

CREATE INDEX scan_runs_newest ON scan_runs (started_at DESC, run_id);
CREATE INDEX scan_runs_of_touchpoint ON scan_runs (touchpoint_id, started_at DESC, run_id);
