"""The only SQL of the proposal service, one module a subject. Every function takes a connection; none commits."""
