-- Calls of models that read prose, each from its start. One without `finished_at` is in flight or was lost, and counts
-- `most_usd`. The reply is kept, so that no workspace pays for the same question twice. No foreign key: what was spent
-- stays written down.
CREATE TABLE model_calls (
    call_id        uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id   uuid        NOT NULL,
    run_id         uuid        NOT NULL,
    request_sha256 text        NOT NULL,
    provider       text        NOT NULL,
    model          text        NOT NULL,
    free           boolean     NOT NULL,
    most_usd       numeric     NOT NULL CHECK (most_usd >= 0),
    started_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    input_tokens   int,
    output_tokens  int,
    usd            numeric     CHECK (usd >= 0),
    latency_ms     float8,
    reply          text,
    error          text        CHECK (length(error) <= 500),
    -- It was paid for and said nothing, and would say nothing if it were asked again: it is not, within its run.
    in_vain        boolean     NOT NULL DEFAULT false
);
CREATE INDEX model_calls_of_day ON model_calls (started_at) WHERE NOT free;
CREATE INDEX model_calls_of_request ON model_calls (workspace_id, request_sha256);
CREATE INDEX model_calls_of_run ON model_calls (run_id);
SELECT separate_workspaces('model_calls');

-- What an upload that a model reads may cost, and the run that its calls are written under.
ALTER TABLE uploads ADD COLUMN max_usd numeric CHECK (max_usd >= 0), ADD COLUMN run_id uuid;
