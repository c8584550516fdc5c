"""Events, commands, queries and the topology of the bus: pydantic models and nothing else."""
