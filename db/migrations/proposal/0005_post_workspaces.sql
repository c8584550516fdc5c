-- No code is left that names no workspaces: whoever names none sees nothing.

DROP POLICY former_code ON patterns;
DROP POLICY former_code ON proposals;
DROP POLICY former_code ON decisions;
DROP POLICY former_code ON ab_outcomes;
DROP POLICY former_code ON model_calls;
