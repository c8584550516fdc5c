-- Each workspace's rows by themselves. The code of before names no workspaces and sees everything while it runs.

SELECT separate_workspaces('patterns');
SELECT separate_workspaces('proposals');
SELECT separate_with('decisions', 'proposals', 'proposal_id', 'proposal_id');
SELECT separate_with('ab_outcomes', 'proposals', 'proposal_id', 'proposal_id');
SELECT separate_with('model_calls', 'proposals', 'proposal_id', 'proposal_id');

CREATE POLICY former_code ON patterns USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON proposals USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON decisions USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON ab_outcomes USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON model_calls USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
