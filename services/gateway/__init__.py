"""The gateway: the one process that faces a network. It asks the owners and decides nothing."""
