"""The scanner: finds signals in the platform's tables, and says every run, good or bad."""
