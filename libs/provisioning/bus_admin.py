"""A connection as `bus_admin`, the one user of the account that has JetStream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.errors import APIError

from libs.provisioning.errors import NoJetStream, TopologyError
from libs.provisioning.nats_config import ADMIN_USER

API_TIMEOUT_S = 10.0
SWITCHED_OFF = (10039, 10076)  # for the account, for the server


class BusAdmin:
    """Asks the JetStream API. nats-py's own models do not know `allow_atomic` and `max_expires`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, api: str, body: Mapping[str, Any] | None = None, timeout_s: float = API_TIMEOUT_S) -> Any:
        """One API call. Raises `APIError` when the server says no, `TopologyError` when it says nothing."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            answer = await self.client.request(f"$JS.API.{api}", payload, timeout=timeout_s)
        except NoRespondersError as error:
            raise NoJetStream(
                "NATS has no JetStream for the account BUS",
                "start the server with a jetstream block and the accounts of `burnish topology --write FILE`",
            ) from error
        except (NatsError, TimeoutError, OSError) as error:
            raise TopologyError(
                f"NATS gave no answer to {api} within {timeout_s:g} s ({type(error).__name__})",
                "see its log: a full disk is said there",
            ) from error
        document = json.loads(answer.data)
        if "error" in document:
            if document["error"].get("err_code") in SWITCHED_OFF:
                raise NoJetStream("NATS has switched JetStream off", "see its log: a full disk is said there")
            raise APIError.from_error(document["error"])
        return document


@asynccontextmanager
async def bus_admin(url: str, password: str) -> AsyncIterator[BusAdmin]:
    """Connected for this while. Raises `TopologyError` when the server cannot be reached or refuses."""
    client = await connect(url, password)
    try:
        yield BusAdmin(client)
    finally:
        await client.close()


async def connect(url: str, password: str, *, patient: bool = False) -> Client:
    """A connection; a `patient` one comes back by itself for ever after the first time."""

    async def quiet(_: Exception) -> None:
        """What goes wrong is raised where it is waited for."""

    if not _is_url(url):
        raise TopologyError("the URL of NATS is none", "a URL such as nats://127.0.0.1:4222 was expected")
    client = Client()
    try:
        await client.connect(
            url,
            user=ADMIN_USER,
            password=password,
            name="burnish/bus_admin",
            connect_timeout=5,
            allow_reconnect=patient,
            max_reconnect_attempts=-1 if patient else 1,
            reconnect_time_wait=1,
            ping_interval=20,
            error_cb=quiet,
        )
    except (NatsError, TimeoutError, OSError) as error:
        # A server that refuses leaves its socket behind; a URL that is none leaves a client that cannot even be closed.
        with suppress(NatsError, OSError, AssertionError):
            await client.close()
        raise TopologyError(
            f"NATS cannot be reached as {ADMIN_USER} ({type(error).__name__})",
            "check that it runs, BURNISH_NATS_URL, and the password of BUS_ADMIN",
        ) from error
    except ValueError as error:
        raise TopologyError("the URL of NATS is none", "a URL such as nats://127.0.0.1:4222 was expected") from error
    return client


def _is_url(url: str) -> bool:
    """What nats-py takes; of some others it makes an assertion that fails."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("nats", "tls", "ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
