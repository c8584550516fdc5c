"""The command line of Burnish and what it needs to run a whole installation on one machine."""
