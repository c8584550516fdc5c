"""Questions that need an answer now, one module an owner: the service that answers them."""
