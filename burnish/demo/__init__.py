"""The demonstration: the whole loop once around, through the real services, on real input."""
