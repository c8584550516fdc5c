"""The only SQL of the Q&A library. Functions take a connection and never commit."""
