-- What settled calls cost, by UTC day and touchpoint: the budget adds up a few rows, however many calls there were.
CREATE TABLE model_spend (
    day           date    NOT NULL,
    touchpoint_id text    NOT NULL,
    provider      text    NOT NULL,
    model         text    NOT NULL,
    calls         bigint  NOT NULL,
    input_tokens  bigint  NOT NULL,
    output_tokens bigint  NOT NULL,
    usd           numeric NOT NULL CHECK (usd >= 0),
    PRIMARY KEY (day, touchpoint_id, provider, model)
);

INSERT INTO model_spend
SELECT (started_at AT TIME ZONE 'UTC')::date, touchpoint_id, provider, model,
       sum(calls), sum(input_tokens), sum(output_tokens), sum(usd)
FROM model_calls WHERE finished_at IS NOT NULL AND usd IS NOT NULL
GROUP BY 1, 2, 3, 4;

CREATE INDEX model_calls_open ON model_calls (started_at) WHERE finished_at IS NULL AND NOT free;
