-- No code is left that names no workspaces: whoever names none sees nothing.

DROP POLICY former_code ON signals;
DROP POLICY former_code ON patterns;
DROP POLICY former_code ON activations;
DROP POLICY former_code ON exposures;
DROP POLICY former_code ON pattern_evidence;
DROP POLICY former_code ON pattern_history;
