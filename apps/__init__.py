"""Applications: HTTP clients of the gateway with the caller's own token. They own nothing and decide nothing."""
