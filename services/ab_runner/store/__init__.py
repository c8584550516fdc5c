"""The only SQL of the A/B runner, one module a subject. Every function takes a connection; none commits."""
