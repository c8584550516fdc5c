-- No code is left that names no workspaces: whoever names none sees nothing.

DROP POLICY former_code ON prompt_quality_signals;
