"""What every connection to Postgres has in common, whoever opens it."""

from libs.postgres.sessions import LOST_AFTER_S, VIGILANCE, session_settings

__all__ = ["LOST_AFTER_S", "VIGILANCE", "session_settings"]
