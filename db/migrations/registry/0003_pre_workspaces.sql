-- Each workspace's rows by themselves. The code of before names no workspaces and sees everything while it runs.

SELECT separate_workspaces('prompt_versions');
SELECT separate_workspaces('prompt_version_registry');
SELECT separate_workspaces('intents');
SELECT separate_workspaces('ledger_entries');
SELECT separate_with('drift_findings', 'prompt_version_registry', 'activation_id', 'id');
SELECT separate_with('judgements', 'prompt_version_registry', 'activation_id', 'id');

CREATE POLICY former_code ON prompt_versions USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON prompt_version_registry USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON intents USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON ledger_entries USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON drift_findings USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON judgements USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
