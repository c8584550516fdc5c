"""Settings of a session, so that the locks of one whose host is gone end soon.

A process that is killed closes its connections. A host that loses its power or its network does not: the server holds
the session, with its locks and its transaction, until TCP notices, which takes two hours and more by default.
"""

from __future__ import annotations

from collections.abc import Mapping

LOST_AFTER_S = 35.0
"""Within this time the server ends the session of a client that is gone without a word, and with it its locks."""

VIGILANCE: Mapping[str, str] = {
    # A session that waits for its client: asked after 10 s, then every 5 s, gone after the third unanswered time.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # A session with something on the way: keepalives wait for that, so it has a time limit of its own.
    "tcp_user_timeout": "25000",
    # A session that is busy, or waits for a lock: it looks up from time to time. Else it would get the lock when dead.
    "client_connection_check_interval": "5000",
    # A client that is there and stuck in a transaction. Slow work is done outside of one.
    "idle_in_transaction_session_timeout": "300000",
}


def session_settings(name: str) -> dict[str, str]:
    """`server_settings` for a connection: its name in `pg_stat_activity`, and the settings above."""
    return {"application_name": name, **VIGILANCE}
