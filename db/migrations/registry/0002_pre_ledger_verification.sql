-- What `ledger verify` looks up: the activations of one target in order, and the lines about one activation or intent.

CREATE INDEX ledger_entries_of_target ON ledger_entries
    (touchpoint_id, COALESCE(workspace_id, '00000000-0000-0000-0000-000000000000'::uuid), seq)
    WHERE kind IN ('registered', 'activated', 'rolled_back');
CREATE INDEX ledger_entries_of_activation ON ledger_entries ((detail ->> 'activation_id')) WHERE detail ? 'activation_id';
CREATE INDEX ledger_entries_of_intent ON ledger_entries ((detail ->> 'intent_id')) WHERE detail ? 'intent_id';
