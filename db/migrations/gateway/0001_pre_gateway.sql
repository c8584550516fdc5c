-- The gateway: what was answered under a key, and how much each caller has asked for. It decides and knows nothing else.

-- A request that is sent again under its key gets the answer of the first time.
CREATE TABLE idempotency_keys (
    caller         text        NOT NULL,
    key            text        NOT NULL,
    request_sha256 text        NOT NULL,
    answer         jsonb       NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
