-- What was done with pairs, an operation a row: who, why, and what beside the pairs themselves it changed, so that it
-- can be undone. What it did to pairs is in their history, under the same id.

CREATE TABLE operations (
    operation_id uuid        PRIMARY KEY,
    workspace_id uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    kind         text        NOT NULL CHECK (kind ~ '^[a-z_]{1,60}$'),
    done_by      text        NOT NULL CHECK (length(done_by) <= 200),
    done_by_kind text        NOT NULL CHECK (done_by_kind IN ('human', 'machine')),
    reason       text        NOT NULL DEFAULT '' CHECK (length(reason) <= 2000),
    done_at      timestamptz NOT NULL DEFAULT now(),
    -- Citations that it made, extractions that it promoted, the suggestion that it decided, a pair that it removed.
    detail       jsonb       NOT NULL DEFAULT '{}',
    undone_by_id uuid        REFERENCES operations DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX operations_newest ON operations (workspace_id, done_at DESC);
SELECT separate_workspaces('operations', also_all => false);

-- Which reviews are due, beside those that a cadence asks for.
CREATE INDEX q_a_pairs_review_due ON q_a_pairs (workspace_id, governance_review_due)
    WHERE governance_review_due IS NOT NULL AND archived_at IS NULL;
