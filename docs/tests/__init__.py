"""Checks of the pages: links, commands, variables, metrics."""
