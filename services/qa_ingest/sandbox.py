"""Runs extractors and forms in a child process with limits: hostile files cost a second and a bounded piece of memory.

Children are forked from a process that has imported the readers and nothing else of the service: no connection, no
secret. A child gets the file's bytes and gives back JSON, or a filled form's bytes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from services.qa_ingest.documents.package import Refused
from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import Extracted
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.forms.base import Form, Outcome

PRELOADED = [
    "services.qa_ingest.extractors.docx",
    "services.qa_ingest.extractors.markdown_heading",
    "services.qa_ingest.extractors.pseudo_yaml",
    "services.qa_ingest.extractors.xlsx",
    "services.qa_ingest.extractors.yaml_frontmatter",
    "services.qa_ingest.forms.document",
    "services.qa_ingest.forms.pdf",
    "services.qa_ingest.forms.workbook",
]
MAX_ANSWER_BYTES = 256 * 1024 * 1024
_OUTCOMES: TypeAdapter[dict[int, Outcome]] = TypeAdapter(dict[int, Outcome])


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
    answer = run_now(partial(_extracted, kind, file.name, file.workspace_id), file.content, limits)
    try:
        return Extracted.model_validate_json(answer)
    except ValidationError as error:
        raise _unusable() from error


async def read_form(content: bytes, limits: Limits = Limits()) -> Form:
    """The questions of a form. Raises `FileRejected`, also where a limit was reached."""
    answer = await asyncio.to_thread(run_now, _form, content, limits)
    try:
        return Form.model_validate_json(answer)
    except ValidationError as error:
        raise _unusable() from error


async def fill_form(
    kind: str, content: bytes, answers: Mapping[int, str], limits: Limits = Limits()
) -> tuple[bytes, Mapping[int, Outcome]]:
    """A form with these answers, and what became of each. Raises `FileRejected`, also where a limit was reached."""
    made = await asyncio.to_thread(run_now, partial(_filled, kind, dict(answers)), content, limits)
    told, _, filled = made.partition(b"\n")
    try:
        return filled, _OUTCOMES.validate_json(told)
    except ValidationError as error:
        raise _unusable() from error


def run_now(work: Callable[[bytes], bytes], content: bytes, limits: Limits = Limits()) -> bytes:
    """What `work` makes of hostile bytes, in a child. `work` is a function of a module, or a `partial` of one."""
    ours, theirs = _context().Pipe()
    child = _context().Process(target=_child, args=(theirs, work, limits), daemon=True, name="extract")
    child.start()
    theirs.close()
    try:
        ours.send_bytes(content)
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


def _answered(answer: bytes) -> bytes:
    verdict, document = answer[:1], answer[1:]
    if verdict == b"+":
        return document
    try:
        code, *problems = document.decode().split("\x1e")
        told = [problem.split("\x1f", 1) for problem in problems]
        raise FileRejected(code, [Problem(int(line), message) for line, message in told])
    except ValueError as error:
        raise (error if isinstance(error, FileRejected) else _unusable()) from None


def _unusable() -> FileRejected:
    return FileRejected("bad_answer", [Problem(1, "the reader gave no usable answer")])


def _child(connection: Connection, work: Callable[[bytes], bytes], limits: Limits) -> None:
    content = connection.recv_bytes(MAX_ANSWER_BYTES)
    _limit(limits, len(content))
    try:
        answer = b"+" + work(content)
    except FileRejected as refused:
        problems = [f"{problem.line}\x1f{problem.message}" for problem in refused.problems]
        answer = b"-" + "\x1e".join([refused.code, *problems]).encode("utf-8", "replace")
    except Refused as refused:
        answer = b"-" + f"{refused.code}\x1e1\x1f{refused.message}".encode("utf-8", "replace")
    except (MemoryError, RecursionError):
        os._exit(1)
    except ValidationError:
        answer = b"-" + "\x1e".join(["bad_pair", "1\x1fa pair in it does not fit the format"]).encode()
    connection.send_bytes(answer)
    connection.close()


# --- what runs in the child -------------------------------------------------------------------------------------


def _extracted(kind: str, name: str, workspace_id: UUID | None, content: bytes) -> bytes:
    from services.qa_ingest.extractors import run

    return run(kind, File(name, content, workspace_id)).model_dump_json().encode()


def _form(content: bytes) -> bytes:
    from services.qa_ingest.forms import format_of, kind_of

    kind = kind_of(content)
    return format_of(kind).read(content).model_copy(update={"kind": kind}).model_dump_json().encode()


def _filled(kind: str, answers: Mapping[int, str], content: bytes) -> bytes:
    from services.qa_ingest.forms import format_of

    filled, outcomes = format_of(kind).fill(content, answers)
    return _OUTCOMES.dump_json(dict(outcomes)) + b"\n" + filled


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
