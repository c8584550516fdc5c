"""What is made before a service runs: schemas and roles, the bus configuration, streams and durables."""
