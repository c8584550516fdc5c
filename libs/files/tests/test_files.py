"""Reading what a person names: every kind of file, every size, and nothing that waits or fills the memory."""

from __future__ import annotations

import io
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.files import UnreadableFile, read_bytes, read_stream, read_text, require_regular, shown

LIMIT = 1_000


def test_a_regular_file_is_read_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_bytes(file, LIMIT) == b"\xef\xbb\xbfa\r\nb"
    assert read_text(file, LIMIT) == "\ufeffa\r\nb"
    assert read_text(file, LIMIT, encoding="utf-8-sig") == "a\r\nb"
    assert require_regular(file, LIMIT) == 7


def test_the_limit_is_the_last_size_that_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"x" * LIMIT)
    assert len(read_bytes(file, LIMIT)) == LIMIT
    file.write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(UnreadableFile, match=r"it is 1,001 bytes; at most 1,000 are read"):
        read_bytes(file, LIMIT)
    with pytest.raises(UnreadableFile, match=r"1,001 bytes"):
        require_regular(file, LIMIT)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    # A socket's name may have about a hundred bytes, which a test's folder alone can take.
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


KINDS: list[tuple[Callable[[Path], object], str]] = [
    (Path.mkdir, "a folder"),
    (_pipe, "a pipe"),
    (_socket, "a socket"),
    (lambda path: path.symlink_to("/dev/zero"), "a device"),
    (lambda path: path.symlink_to("/dev/full"), "a device"),
    (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    (lambda path: path.symlink_to("nowhere"), "No such file"),
    (lambda path: None, "No such file"),
]


@pytest.mark.parametrize(("make", "told"), KINDS, ids=[told for _, told in KINDS])
@pytest.mark.parametrize("read", [read_bytes, read_text, require_regular])
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], object], told: str, read: Callable[[Path, int], object]
) -> None:
    path = tmp_path / "thing"
    make(path)
    began = time.monotonic()
    with pytest.raises(UnreadableFile, match=told) as refused:
        read(path, LIMIT)
    assert time.monotonic() - began < 1
    assert str(refused.value).startswith(f"{path}: it ")
    assert refused.value.absent == (told == "No such file")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(UnreadableFile, match="no file can have this name") as refused:
        read_bytes(Path(name), LIMIT)
    assert str(refused.value).isprintable()


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="too long"):
        read_bytes(tmp_path / ("x" * 5_000), LIMIT)


def test_a_file_below_a_file_is_absent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnreadableFile) as refused:
        read_bytes(tmp_path / "file" / "below", LIMIT)
    assert refused.value.absent


def test_a_link_is_followed_unless_it_must_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link", LIMIT) == "x"
    with pytest.raises(UnreadableFile, match="a symbolic link"):
        read_text(tmp_path / "link", LIMIT, follow=False)


def test_a_file_that_says_less_than_it_has(tmp_path: Path) -> None:
    # Files of the kernel say 0 bytes and have more.
    assert Path("/proc/self/status").stat().st_size == 0
    assert b"VmRSS" in read_bytes("/proc/self/status", 100_000)
    with pytest.raises(UnreadableFile, match="more than the 10 bytes"):
        read_bytes("/proc/self/status", 10)


def test_a_file_that_cannot_be_read_says_why() -> None:
    with pytest.raises(UnreadableFile, match="it cannot be read"):
        read_bytes("/proc/self/mem", LIMIT)


def test_what_is_not_text_names_the_line_and_not_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"canary\ncanary\xff\n")
    with pytest.raises(UnreadableFile, match=r"line 2: it is not UTF-8: .* at byte 13") as refused:
        read_text(file, LIMIT)
    assert refused.value.line == 2
    assert "canary" not in refused.value.reason


def test_a_stream_is_bounded() -> None:
    assert read_stream(io.BytesIO(b"x" * LIMIT), "<stdin>", LIMIT) == b"x" * LIMIT
    with pytest.raises(UnreadableFile, match="<stdin>: it has more than the 1,000 bytes"):
        read_stream(io.BytesIO(b"x" * (LIMIT + 1)), "<stdin>", LIMIT)


def test_a_sparse_file_of_a_terabyte_costs_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    with file.open("wb") as made:
        made.truncate(1 << 40)
    with pytest.raises(UnreadableFile, match=r"1,099,511,627,776 bytes"):
        read_bytes(file, LIMIT)


def test_a_file_that_grows_while_it_is_read_costs_no_more_than_the_limit() -> None:
    # The kernel's list of symbols: 0 bytes by its own account, megabytes to whoever reads on.
    script = (
        "import sys\nfrom libs.files import read_bytes\n"
        "try:\n    read_bytes(sys.argv[1], 4096)\nexcept OSError as error:\n    print(error)"
    )
    limit = 600 << 20
    done = subprocess.run(
        [sys.executable, "-c", script, "/proc/kallsyms"],
        capture_output=True,
        check=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert "/proc/kallsyms: it " in done.stdout


def test_a_path_is_shown_without_what_cannot_be_printed() -> None:
    assert shown("a\n\x1b[31m\u202eb\ud800") == r"a\n\x1b[31m\u202eb\ud800"
    assert shown(Path("Gebühren & mehr.md")) == "Gebühren & mehr.md"
