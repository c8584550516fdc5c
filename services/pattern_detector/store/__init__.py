"""The only SQL of the pattern detector, one module a subject. Every function takes a connection; none commits."""
