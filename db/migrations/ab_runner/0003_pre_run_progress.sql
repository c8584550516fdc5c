-- When a shard was dealt and when it was last taken up, so that a run whose shard is lost can end with its reason.
ALTER TABLE shards
    ADD COLUMN dealt_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN begun_at timestamptz,
    ADD COLUMN taken_up_at timestamptz;

CREATE INDEX runs_running ON runs (run_id) WHERE status = 'running';
