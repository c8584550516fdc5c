"""Burnish: the command line, and running an installation."""

__version__ = "0.1.0"
