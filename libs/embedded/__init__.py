"""Real Postgres and NATS servers out of Python wheels, as children of this process with one folder each."""

from libs.embedded.errors import EmbeddedError, FolderInUse, PortTaken
from libs.embedded.nats import EmbeddedNats
from libs.embedded.postgres import EmbeddedPostgres

__all__ = [
    "EmbeddedError",
    "EmbeddedNats",
    "EmbeddedPostgres",
    "FolderInUse",
    "PortTaken",
]
