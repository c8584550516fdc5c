-- Each workspace's rows by themselves. The code of before names no workspaces and sees everything while it runs.

SELECT separate_workspaces('prompt_quality_signals');

CREATE POLICY former_code ON prompt_quality_signals USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
