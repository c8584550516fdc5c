-- When a caller asked for what is limited, so that all replicas count together. One row a caller, no word of a request.
CREATE TABLE recent_requests (
    kind    text          NOT NULL,
    subject text          NOT NULL,
    times   timestamptz[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (kind, subject)
);
