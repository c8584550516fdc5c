-- Each workspace's rows by themselves. The code of before names no workspaces and sees everything while it runs.

SELECT separate_workspaces('signals');
SELECT separate_workspaces('patterns');
SELECT separate_workspaces('activations');
SELECT separate_workspaces('exposures');
SELECT separate_with('pattern_evidence', 'patterns', 'pattern_id', 'pattern_id');
SELECT separate_with('pattern_history', 'patterns', 'pattern_id', 'pattern_id');

CREATE POLICY former_code ON signals USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON patterns USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON activations USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON exposures USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON pattern_evidence USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON pattern_history USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
