"""Agents: their packs, versions and tools, and how they are refined by conversation."""
