"""Runs an extractor in a child process with limits: hostile files cost a second and a bounded piece of memory.

Children are forked from a process that has imported the readers and nothing else of the service: no connection, no
secret. A child gets the file's bytes and gives back JSON.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from uuid import UUID

from pydantic import ValidationError

from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import Extracted
from services.qa_ingest.extractors.base import File, FileRejected

PRELOADED = [
    "services.qa_ingest.extractors.docx",
    "services.qa_ingest.extractors.markdown_heading",
    "services.qa_ingest.extractors.pseudo_yaml",
    "services.qa_ingest.extractors.xlsx",
    "services.qa_ingest.extractors.yaml_frontmatter",
]
MAX_ANSWER_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may use: seconds by the clock and of the processor, bytes of memory beyond what it starts with."""

    seconds: float = 20.0
    cpu_seconds: int = 15
    memory_bytes: int = 1024 * 1024 * 1024


async def extract(kind: str, file: File, limits: Limits = Limits()) -> Extracted:
    """What the extractor of this name finds in a file. Raises `FileRejected`, also where a limit was reached."""
    return await asyncio.to_thread(extract_now, kind, file, limits)


def extract_now(kind: str, file: File, limits: Limits = Limits()) -> Extracted:
    """See `extract`."""
    ours, theirs = _context().Pipe()
    child = _context().Process(
        target=_child, args=(theirs, kind, file.name, file.workspace_id, limits), daemon=True, name="extract"
    )
    child.start()
    theirs.close()
    try:
        ours.send_bytes(file.content)
        if not ours.poll(limits.seconds):
            raise FileRejected("too_slow", [Problem(1, f"reading it takes longer than {limits.seconds:g} s")])
        answer = ours.recv_bytes(MAX_ANSWER_BYTES)
    except (EOFError, OSError) as error:
        raise FileRejected("too_large", [Problem(1, "reading it needs more memory or time than a file may")]) from error
    finally:
        ours.close()
        child.kill()
        child.join()
        child.close()
    return _answered(answer)


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _answered(answer: bytes) -> Extracted:
    verdict, document = answer[:1], answer[1:]
    try:
        if verdict == b"+":
            return Extracted.model_validate_json(document)
        code, *problems = document.decode().split("\x1e")
        told = [problem.split("\x1f", 1) for problem in problems]
        raise FileRejected(code, [Problem(int(line), message) for line, message in told])
    except ValidationError as error:
        raise FileRejected("bad_answer", [Problem(1, "the reader gave no usable answer")]) from error


def _child(connection: Connection, kind: str, name: str, workspace_id: UUID | None, limits: Limits) -> None:
    from services.qa_ingest.extractors import named

    content = connection.recv_bytes(MAX_ANSWER_BYTES)
    _limit(limits, len(content))
    try:
        found = named(kind).extract(File(name, content, workspace_id))
        answer = b"+" + found.model_dump_json().encode()
    except FileRejected as refused:
        problems = [f"{problem.line}\x1f{problem.message}" for problem in refused.problems]
        answer = b"-" + "\x1e".join([refused.code, *problems]).encode("utf-8", "replace")
    except (MemoryError, RecursionError):
        os._exit(1)
    except ValidationError:
        answer = b"-" + "\x1e".join(["bad_pair", "1\x1fa pair in it does not fit the format"]).encode()
    connection.send_bytes(answer)
    connection.close()


def _limit(limits: Limits, size: int) -> None:
    used = _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory_bytes + size, used + limits.memory_bytes + size))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.clear()


def _address_space() -> int:
    """What the process has mapped now, in bytes; where nobody tells, 4 GiB are taken for it."""
    try:
        with open("/proc/self/statm") as told:
            return int(told.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 4 * 1024**3
