"""Runs both variants of a prompt over the same cases and says which is better."""
