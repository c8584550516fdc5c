"""Readers of office documents: hostile bytes in, plain structures out. They run in a child process."""
