"""A prompt of several parts as the one text that a model is sent. Pure."""

from collections.abc import Iterable


def join_parts(texts: Iterable[str]) -> str:
    """The parts of a prompt as the one text that is parsed and sent, in order, each starting on a new line."""
    joined = ""
    for text in texts:
        joined += text if not joined or joined.endswith("\n") else f"\n{text}"
    return joined
