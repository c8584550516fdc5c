"""One router an owner: each only asks."""
