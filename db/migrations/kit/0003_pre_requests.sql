-- What a question that changes something was answered with, so that asking again has no second effect.
CREATE TABLE requests (
    request_id   uuid        PRIMARY KEY,
    query_sha256 text        NOT NULL,
    reply        jsonb       NOT NULL,
    answered_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX requests_by_age ON requests (answered_at);
