"""The registry: touchpoints, the version ledger, stored prompts and rollback proposals; the HTTP gateway."""
