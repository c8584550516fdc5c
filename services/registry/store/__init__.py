"""The only SQL of the registry, one module a table. Every function takes a connection; none commits."""
