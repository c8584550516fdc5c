"""The normaliser: owns `prompt_quality_signals`; validates, maps severity, deduplicates, rejects."""
