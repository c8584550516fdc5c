-- What refine turns cost. A row a call that can cost money, without a word of what was asked or answered: a turn is
-- kept nowhere.
CREATE TABLE model_calls (
    call_id        uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    agent_id       uuid        NOT NULL,
    workspace_id   uuid        NOT NULL,
    touchpoint_id  text        NOT NULL,
    provider       text        NOT NULL,
    model          text        NOT NULL,
    most_usd       numeric     NOT NULL CHECK (most_usd >= 0),
    started_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    input_tokens   int,
    output_tokens  int,
    usd            numeric     CHECK (usd >= 0),
    latency_ms     float8,
    error          text
);
CREATE INDEX model_calls_of_day ON model_calls (started_at);
SELECT separate_workspaces('model_calls');
