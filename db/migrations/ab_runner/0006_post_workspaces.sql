-- No code is left that names no workspaces: whoever names none sees nothing.

DROP POLICY former_code ON runs;
DROP POLICY former_code ON baselines;
DROP POLICY former_code ON eval_regression_events;
DROP POLICY former_code ON shards;
DROP POLICY former_code ON model_calls;
