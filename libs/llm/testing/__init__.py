"""A real server that speaks the providers' wire formats, for the tests of every service that asks a model."""

from libs.llm.testing.server import Asked, Chat, Messages, ModelServer, Wire, Written

__all__ = ["Asked", "Chat", "Messages", "ModelServer", "Wire", "Written"]
