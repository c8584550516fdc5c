-- Row-level security keeps these from being used: what they index is read out of a document, or computed.

DROP INDEX IF EXISTS ledger_entries_of_target;
DROP INDEX IF EXISTS ledger_entries_of_activation;
DROP INDEX IF EXISTS ledger_entries_of_intent;
