"""Facts and commands on the bus, one module an owner: who says the fact, or who is asked to act."""
