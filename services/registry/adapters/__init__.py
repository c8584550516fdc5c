"""Adapters, a module each, found by its registration. `base` says what one is; `services.registry.stores` chooses."""
