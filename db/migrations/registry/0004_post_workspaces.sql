-- No code is left that names no workspaces: whoever names none sees nothing.

DROP POLICY former_code ON prompt_versions;
DROP POLICY former_code ON prompt_version_registry;
DROP POLICY former_code ON intents;
DROP POLICY former_code ON ledger_entries;
DROP POLICY former_code ON drift_findings;
DROP POLICY former_code ON judgements;
