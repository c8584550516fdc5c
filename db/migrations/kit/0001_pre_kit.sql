-- The tables the service kit needs in every service's schema.

-- One row for each event whose effect has been committed: what makes an effect happen once.
CREATE TABLE inbox (
    consumer text        NOT NULL,
    event_id uuid        NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);

-- Facts to be said, written in the transaction that made them true. msg_id is random, never the event's id:
-- the bus deduplicates per stream, across subjects.
CREATE TABLE outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    msg_id     uuid        NOT NULL DEFAULT gen_random_uuid(),
    subject    text        NOT NULL,
    body       bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION outbox_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('outbox_' || TG_TABLE_SCHEMA, '');
    RETURN NULL;
END
$$;

CREATE TRIGGER outbox_wake AFTER INSERT ON outbox
    FOR EACH STATEMENT EXECUTE FUNCTION outbox_wake();

-- Messages that could not be handled, whole, with what went wrong.
CREATE TABLE dead_letters (
    id           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    consumer     text        NOT NULL,
    subject      text        NOT NULL,
    event_id     uuid,
    body         bytea       NOT NULL,
    headers      jsonb       NOT NULL DEFAULT '{}',
    error        text        NOT NULL,
    error_class  text        NOT NULL,
    deliveries   int         NOT NULL,
    stream_seq   bigint,
    failed_at    timestamptz NOT NULL DEFAULT now(),
    replayed_at  timestamptz,
    replay_count int         NOT NULL DEFAULT 0
);

-- One delivery is one dead letter (insert with ON CONFLICT DO NOTHING). The sequence alone is not enough: it begins
-- again when a stream is made anew, and then another message would be taken for this one and lost.
CREATE UNIQUE INDEX dead_letters_once
    ON dead_letters (consumer, stream_seq, sha256(body)) NULLS NOT DISTINCT;

CREATE INDEX dead_letters_open ON dead_letters (failed_at, id) WHERE replayed_at IS NULL;
