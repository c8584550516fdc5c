-- The activations of one target in order: in two, so that row-level security lets them be used, and the order counts.

CREATE INDEX ledger_entries_of_one_workspace ON ledger_entries (touchpoint_id, workspace_id, seq)
    WHERE workspace_id IS NOT NULL AND kind IN ('registered', 'activated', 'rolled_back');
CREATE INDEX ledger_entries_of_no_workspace ON ledger_entries (touchpoint_id, seq)
    WHERE workspace_id IS NULL AND kind IN ('registered', 'activated', 'rolled_back');
