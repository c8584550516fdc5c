"""A small agent engine: executes gates, milestones, routes and completion of a skill pack; no language model."""
