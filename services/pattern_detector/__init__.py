"""The pattern detector: finds recurring faults among the signals of a touchpoint."""
