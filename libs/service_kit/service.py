"""One service: what it hears, answers and does now and then, wired to its servers and run until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

import uvicorn
from fastapi import FastAPI

from libs.contracts import topology
from libs.contracts.envelope import Event, EventData
from libs.contracts.queries.base import AnyQuery, Reply
from libs.contracts.queries.dead_letters import (
    Buried,
    BuryStranded,
    DeadLetters,
    ListDeadLetters,
    ReplayDeadLetter,
    Replayed,
)
from libs.service_kit import asyncapi, dead_letters, logging, outbox, pruning, relay
from libs.service_kit.bus import Bus
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.health import Check, Readiness, health_app, health_router
from libs.service_kit.metrics import CONSUMER_LAG, DEAD_LETTERS_OPEN, OUTBOX_AGE, OUTBOX_DEPTH
from libs.service_kit.overhearing import Gap, Overhearer
from libs.service_kit.publishing import Publisher
from libs.service_kit.queries import Asker, Responder
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.settings import KitSettings
from libs.service_kit.wiring import Handler, WiringError

log = logging.get(__name__)

DataT = TypeVar("DataT", bound=EventData)
QueryT = TypeVar("QueryT", bound=AnyQuery)
P = ParamSpec("P")
Job = Callable[[], Awaitable[Any]]
START_PATIENCE_S = 60.0
GAUGES_EVERY_S = 5.0


class Service:
    """The composition root of a service hands its parts to this and calls `run()`."""

    def __init__(self, name: str, settings: KitSettings) -> None:
        self.entry = topology.service(name)
        self.name = name
        self.settings = settings
        self.db = Database(
            name, settings.database_url.get_secret_value(), pool_size=settings.pool_size, inbox=settings.inbox
        )
        self.bus = Bus(name, settings)
        self.bus.on_lost = lambda: self._fail("bus")
        self.broker = self.bus.broker
        for event in self.entry.says:  # for the document only: facts leave through the outbox
            self.broker.publisher(event.type, schema=Event[event], title=event.type)  # type: ignore[valid-type]
        self.asker = Asker(lambda: self.bus.client)
        self._consumers: dict[str, Consumer[Any]] = {}
        self._responders: list[Responder] = self._dead_letter_responders()
        self._overhearers: list[Overhearer] = []
        self._gap_jobs: list[Gap] = []
        self.bus.on_gap = self._gap
        self._jobs: list[tuple[str, Job, float]] = []
        self._starters: list[Job] = []
        self._stoppers: list[Job] = []
        self._checks: dict[str, Check] = {}
        self._app: FastAPI | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._failed: str | None = None
        self._relay: relay.Relay | None = None
        self.http_port: int | None = None
        self.started = asyncio.Event()

    # --- wiring -------------------------------------------------------------------------------------------

    def consume_each(
        self,
        event: type[DataT],
        handler: Callable[Concatenate[Event[DataT], P], Awaitable[None]],
        *none: P.args,
        **dependencies: P.kwargs,
    ) -> None:
        """Hear `event`, as the topology allows, one at a time. Raises WiringError where handler or durable do not fit.

        `dependencies` are given to each call by name.
        """
        self._consume("consume_each", event, handler, none, dependencies)

    def consume_batch(
        self,
        event: type[DataT],
        handler: Callable[Concatenate[list[Event[DataT]], P], Awaitable[None]],
        *none: P.args,
        **dependencies: P.kwargs,
    ) -> None:
        """Hear `event`, as the topology allows, as many at a time as there are, up to the durable's batch."""
        self._consume("consume_batch", event, handler, none, dependencies)

    def overhear(
        self,
        event: type[DataT],
        listener: Callable[Concatenate[Event[DataT], P], Awaitable[None]],
        *none: P.args,
        **dependencies: P.kwargs,
    ) -> None:
        """Hear `event` as it goes by, in every replica, as the topology allows. Nothing is kept for who is away."""
        if event not in self.entry.overhears:
            raise KeyError(f"the topology does not let {self.name!r} overhear {event.type!r}: add it to SERVICES")
        _keywords_only(none)
        self._overhearers.append(Overhearer(event, listener, dependencies, self._gap, self.broker))

    def on_gap(self, job: Gap) -> None:
        """Call this whenever overheard facts may have been missed: after a reconnect, or when some were dropped."""
        self._gap_jobs.append(job)

    def answer(
        self,
        query: type[QueryT],
        handler: Callable[Concatenate[QueryT, P], Awaitable[Reply]],
        *none: P.args,
        **dependencies: P.kwargs,
    ) -> None:
        """Answer `query`, as the topology allows."""
        if query not in self.entry.answers:
            raise KeyError(f"the topology does not let {self.name!r} answer {query.subject!r}: add it to SERVICES")
        _keywords_only(none)
        self._responders.append(Responder(query.subject, query, handler, dependencies, self.broker))

    def provide(self, **values: Any) -> None:
        """What handlers may take with FastStream's `Context()`, by these names."""
        for name, value in values.items():
            self.broker.context.set_global(name, value)

    def every(self, seconds: float, name: str, job: Job) -> None:
        """Run `job` now and then every so many seconds; a failure is logged and the next turn comes."""
        self._jobs.append((name, job, seconds))

    def on_start(self, job: Job) -> None:
        """Run once after database and bus are there, before the first message."""
        self._starters.append(job)

    def on_stop(self, job: Job) -> None:
        """Run once when stopping, before the connections close."""
        self._stoppers.append(job)

    def check(self, name: str, check: Check) -> None:
        """One more condition of readiness."""
        self._checks[name] = check

    def serve(self, app: FastAPI) -> None:
        """Serve this app instead of the bare health endpoints; those are added to it."""
        self._app = app

    # --- life ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start, work until SIGTERM or SIGINT (or `stop()`), finish what is in hand, close.

        Raises RuntimeError when it ended because a part of it did, so that whoever watches starts it again.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._stopping.set)
        try:
            await self.start()
            gc.freeze()  # what is loaded by now lives as long as the process: no collection need walk it again
            await self._stopping.wait()
        finally:
            await self.close()
        if self._failed is not None:
            raise RuntimeError(f"{self.name} ended because its part {self._failed!r} did; its log says why")

    def stop(self) -> None:
        """Ask `run()` to end."""
        self._stopping.set()

    async def start(self) -> None:
        """Connect and begin to work. The health endpoints answer from the first moment, ready only at the end."""
        self._check_wiring()
        await self._start_http()
        await self._patiently("database", self.db.open)
        await self._patiently("bus", self.bus.open)
        publisher = Publisher(self.bus.client, self.bus.js)
        self._relay = relay.Relay(self.db, publisher)
        self.db.on_emitted = self._relay.wake
        for job in self._starters:
            await job()
        self._spawn("outbox", self._relay.run())
        for responder in self._responders:
            await responder.start(self.bus.client)
        for overhearer in self._overhearers:
            await overhearer.start(self.bus.client)
        await self.bus.client.flush()
        for consumer in self._consumers.values():
            self._spawn(consumer.name, consumer.run(self.bus.client, self.bus.prefix))
        for name, work, seconds in [*self._jobs, *self._own_jobs()]:
            self._spawn(name, self._repeat(name, work, seconds))
        self.started.set()
        log.info("service.started", http_port=self.http_port)

    async def close(self) -> None:
        """Stop taking work, finish what is in hand within the graceful timeout, close the connections."""
        log.info("service.stopping")
        self._stopping.set()
        await asyncio.gather(*(consumer.stop() for consumer in self._consumers.values()))
        if self._relay is not None:
            await self._relay.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self.settings.graceful_timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for overhearer in self._overhearers:
            await overhearer.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(each.drain() for each in self._responders)), 5)
        for job in self._stoppers:
            with suppress(Exception):
                await job()
        await self.bus.close()
        await self.db.close()
        log.info("service.stopped")

    # --- parts --------------------------------------------------------------------------------------------

    def _consume(
        self, how: str, event: type[EventData], handler: Handler, none: tuple[Any, ...], dependencies: Mapping[str, Any]
    ) -> None:
        durable = topology.durable(self.name, event)
        right = "consume_each" if durable.batch == 1 else "consume_batch"
        if how != right:
            raise WiringError(
                f"app.py of {self.name} wires {event.__name__} with {how}, but the durable {durable.name} has "
                f"batch={durable.batch} in the topology: use {right}, or change the batch"
            )
        _keywords_only(none)
        self._consumers[durable.name] = Consumer(
            durable,
            handler,
            db=self.db,
            redelivery=Redelivery(self.settings.redelivery_delays_s),
            dependencies=dependencies,
            broker=self.broker,
        )

    def _check_wiring(self) -> None:
        """Built and never turned on: a durable of the table without a handler would silently fill up."""
        missing = [d.event.type for d in self.entry.hears if d.name not in self._consumers]
        overheard = {overhearer.subject for overhearer in self._overhearers}
        missing += [event.type for event in self.entry.overhears if event.type not in overheard]
        if missing:
            raise RuntimeError(f"{self.name} hears {', '.join(missing)} in the topology, but app.py wires no handler")
        for consumer in self._consumers.values():
            consumer.check()
        for responder in self._responders:
            responder.check()
        for overhearer in self._overhearers:
            overhearer.check()

    async def _patiently(self, what: str, connect: Callable[[], Awaitable[None]]) -> None:
        """A server that is not up yet is waited for, up to a minute."""
        deadline = asyncio.get_running_loop().time() + START_PATIENCE_S
        while True:
            try:
                return await connect()
            except Exception as error:
                if asyncio.get_running_loop().time() > deadline or self._stopping.is_set():
                    raise
                log.warning("service.waiting", dependency=what, error=logging.describe(error))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), 0.5)

    def _gap(self) -> None:
        for job in self._gap_jobs:
            job()

    def _spawn(self, name: str, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # A part of a service that ends for an unknown reason takes the service down, visibly.
                self._fail(name)
                log.error("service.part_failed", part=name, error=logging.describe(error), exc_info=True)

        self._tasks.append(asyncio.create_task(guarded(), name=name))

    def _fail(self, part: str) -> None:
        self._failed = self._failed or part
        self._stopping.set()

    async def _repeat(self, name: str, job: Job, seconds: float) -> None:
        while not self._stopping.is_set():
            try:
                await job()
            except Exception as error:
                log.warning("job.failed", job=name, error=logging.describe(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _start_http(self) -> None:
        readiness = Readiness(self.name, self._all_checks())
        app = self._app
        if app is None:
            app = health_app(self.name, readiness)
        else:
            app.include_router(health_router(readiness))
        app.include_router(asyncapi.router(self.name, self.broker))
        listening = _bind(self.settings.http_host, self.settings.http_port)
        self.http_port = int(listening.getsockname()[1])
        server = _Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        self._spawn("http", server.serve(sockets=[listening]))
        self._spawn("http-stop", self._stop_http(server))

    async def _stop_http(self, server: _Server) -> None:
        await self._stopping.wait()
        server.should_exit = True

    def _all_checks(self) -> dict[str, Check]:
        checks: dict[str, Check] = {
            "started": self._check_started,
            "database": self.db.ping,
            "bus": self.bus.ping,
            "outbox": self._check_outbox,
        }
        for consumer in self._consumers.values():
            checks[consumer.name] = self._consumer_check(consumer)
        return {**checks, **self._checks}

    async def _check_started(self) -> None:
        if not self.started.is_set():
            raise RuntimeError("still starting")

    async def _check_outbox(self) -> None:
        """The connection may be fine and the bus take nothing: a stream is full, or its disk is."""
        if self._relay is not None and self._relay.trouble:
            raise RuntimeError(f"facts wait: {self._relay.trouble}")

    def _consumer_check(self, consumer: Consumer[Any]) -> Check:
        async def check() -> None:
            # A durable deleted on the server leaves the connection fine and the service deaf.
            await self.bus.js.consumer_info(consumer.durable.stream, consumer.name)

        return check

    def _own_jobs(self) -> list[tuple[str, Job, float]]:
        return [
            ("gauges", self._gauges, GAUGES_EVERY_S),
            ("inbox", lambda: pruning.prune(self.db, self.settings.inbox_kept), self.settings.inbox_pruned_every_s),
        ]

    async def _gauges(self) -> None:
        async with self.db.connection() as conn:
            DEAD_LETTERS_OPEN.set(await dead_letters.open_count(conn))
            waiting, age = await outbox.depth(conn)
        OUTBOX_DEPTH.set(waiting)
        OUTBOX_AGE.set(age)
        for consumer in self._consumers.values():
            info = await self.bus.js.consumer_info(consumer.durable.stream, consumer.name)
            CONSUMER_LAG.labels(consumer.name).set(info.num_pending or 0)

    def _dead_letter_responders(self) -> list[Responder]:
        list_subject = topology.dead_letter_list_subject(self.name)
        replay_subject = topology.dead_letter_replay_subject(self.name)
        bury_subject = topology.dead_letter_bury_subject(self.name)
        return [
            Responder(list_subject, ListDeadLetters, self._list_dead_letters, {}, self.broker),
            Responder(replay_subject, ReplayDeadLetter, self._replay, {}, self.broker),
            Responder(bury_subject, BuryStranded, self._bury_stranded, {}, self.broker),
        ]

    async def _bury_stranded(self, query: BuryStranded) -> Buried:
        if query.consumer not in {durable.name for durable in self.entry.hears}:
            raise Refused("not_found", f"{self.name} has no durable {query.consumer}", status=404)
        return Buried(new=await dead_letters.bury_stranded(self.db, query))

    async def _list_dead_letters(self, query: ListDeadLetters) -> DeadLetters:
        async with self.db.connection() as conn:
            letters = await dead_letters.listed(conn, self.name, query.include_replayed, query.limit)
        return DeadLetters(dead_letters=tuple(letters))

    async def _replay(self, query: ReplayDeadLetter) -> Replayed:
        async with self.db.connection() as conn:
            letter = await dead_letters.take(conn, query.dead_letter_id)
        if letter is None:
            raise Refused("not_found", f"{self.name} has no dead letter {query.dead_letter_id}", status=404)
        consumer = self._consumers.get(letter.consumer)
        if consumer is None:
            raise Refused("gone", f"the consumer {letter.consumer} is no longer there", status=410)
        try:
            await consumer.handle_again(letter.body)
        except Exception as error:
            async with self.db.connection() as conn:
                await dead_letters.mark_tried(conn, query.dead_letter_id, error)
            return Replayed(outcome="failed", detail=logging.describe(error))
        async with self.db.connection() as conn:
            await dead_letters.mark_replayed(conn, query.dead_letter_id)
        return Replayed(outcome="handled")


def _keywords_only(none: tuple[Any, ...]) -> None:
    if none:
        raise WiringError(f"dependencies are given by name; {len(none)} came without one")


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the service stops it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the service's."""
        yield


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError that names a taken port and the setting that changes it."""
    try:
        made = socket.create_server((host, port), backlog=256)
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}:{port} ({error.strerror}); set BURNISH_HTTP_PORT to a free port, or 0 for any"
        ) from error
    # Named as TCP, since asyncio sends without delay only on what says so: an answer's body, which follows its head,
    # would wait 40 ms for the caller's acknowledgement of the head.
    return socket.socket(made.family, made.type, socket.IPPROTO_TCP, fileno=made.detach())
