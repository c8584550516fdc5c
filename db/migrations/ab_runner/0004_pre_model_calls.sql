-- Calls of models, each from its start (a batch that a model takes in one go is one row). One without `finished_at` is in
-- flight or was lost, and counts `most_usd`. The answers themselves are in `results`.
CREATE TABLE model_calls (
    call_id       uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    run_id        uuid        NOT NULL,
    touchpoint_id text        NOT NULL,
    provider      text        NOT NULL,
    model         text        NOT NULL,
    free          boolean     NOT NULL,
    calls         int         NOT NULL CHECK (calls >= 1),
    most_usd      numeric     CHECK (most_usd >= 0),
    started_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    input_tokens  int,
    output_tokens int,
    usd           numeric     CHECK (usd >= 0),
    error         text
);

CREATE INDEX model_calls_of_day ON model_calls (started_at) WHERE NOT free;
CREATE INDEX model_calls_of_run ON model_calls (run_id);
