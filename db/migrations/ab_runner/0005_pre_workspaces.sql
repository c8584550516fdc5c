-- Each workspace's rows by themselves. The code of before names no workspaces and sees everything while it runs.

SELECT separate_workspaces('runs');
SELECT separate_workspaces('baselines');
SELECT separate_workspaces('eval_regression_events');
SELECT separate_with('shards', 'runs', 'run_id', 'run_id');
SELECT separate_with('model_calls', 'runs', 'run_id', 'run_id');

CREATE POLICY former_code ON runs USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON baselines USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON eval_regression_events USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON shards USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
CREATE POLICY former_code ON model_calls USING ((SELECT coalesce(current_setting('burnish.workspaces', true), '') = ''));
