"""Rules of the Q&A library. Pure: no I/O, no clock, no bus."""
