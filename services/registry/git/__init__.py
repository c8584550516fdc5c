"""Reads and writes git repositories that others own, without obeying anything that lies in them."""
