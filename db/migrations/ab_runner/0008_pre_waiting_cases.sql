-- Published pairs of the library that wait to be cases of their touchpoint's next suite. One row a pair: the newest
-- version that was heard of. A pair that is no case any more keeps its row, without its words, so that an older fact
-- that comes late brings nothing back.

CREATE TABLE waiting_cases (
    pair_id       uuid        PRIMARY KEY,
    workspace_id  uuid        NOT NULL,
    touchpoint_id text,
    version       int         NOT NULL CHECK (version >= 1),
    waits         boolean     NOT NULL,
    input         text        CHECK (length(input) <= 2000),
    expected      text        CHECK (length(expected) <= 50000),
    said_at       timestamptz NOT NULL,
    heard_at      timestamptz NOT NULL DEFAULT now(),
    CHECK (waits = (touchpoint_id IS NOT NULL AND input IS NOT NULL AND expected IS NOT NULL))
);
CREATE INDEX waiting_cases_of_touchpoint ON waiting_cases (touchpoint_id, said_at DESC, pair_id) WHERE waits;
SELECT separate_workspaces('waiting_cases');
