"""Where documents come from: one small interface, a module a kind of bucket."""
