"""What a pack is, how it maps to the engine's shape, what is wrong with one, and how it is patched. Pure."""
