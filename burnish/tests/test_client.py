from __future__ import annotations

from pathlib import Path

import pytest

from burnish.client import FieldErrors, Gateway
from burnish.failure import Failure
from burnish.tests.conftest import Scripted


def failure(data: Path, method: str = "get") -> Failure:
    with Gateway(data) as api, pytest.raises(Failure) as caught:
        getattr(api, method)("/things")
    return caught.value


def test_the_data_folder_says_where_and_who(data: Path, server: Scripted) -> None:
    server.body = {"a": 1}
    with Gateway(data) as api:
        assert api.get("/things", x=1, y=None, z=True) == {"a": 1}
    assert server.seen == [("GET", "/api/refinement/things?x=1&z=true", "Bearer local-token")]


def test_the_environment_goes_first(data: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_TOKEN", "mine")
    with Gateway(data) as api:
        api.post("/things", {})
    monkeypatch.setenv("BURNISH_URL", f"{server.url}/")
    with Gateway(data / "nothing") as api:
        api.put("/things", {})
    assert [seen[2] for seen in server.seen] == ["Bearer mine"] * 2


def test_a_local_token_goes_to_its_own_url_only(data: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_URL", server.url)
    with Gateway(data) as api:
        api.get("/things")
    monkeypatch.setenv("BURNISH_URL", "http://elsewhere.example")
    with pytest.raises(Failure, match="no token"):
        Gateway(data)
    assert [seen[2] for seen in server.seen] == ["Bearer local-token"]


@pytest.mark.parametrize(
    ("status", "code"), [(401, 4), (403, 4), (404, 5), (409, 6), (413, 2), (422, 2), (500, 1), (503, 3)]
)
def test_each_refusal_has_its_exit_code_and_its_detail(data: Path, server: Scripted, status: int, code: int) -> None:
    server.status = status
    server.body = {"title": "T", "status": status, "code": "c", "detail": "because", "live": "git:1"}
    told = failure(data)
    assert (told.exit_code, told.message) == (code, "because")
    if status == 409:
        assert told.hint == "live: git:1"


def test_field_errors_are_told_one_a_line(data: Path, server: Scripted) -> None:
    server.status = 422
    errors = [{"loc": "signals[0]", "message": "no", "hint": "Yes."}, {"loc": "b", "message": "bad"}]
    server.body = {"detail": "x", "errors": errors}
    told = failure(data, "post")
    assert told.message == "signals[0]: no Yes.\nb: bad"
    assert isinstance(told, FieldErrors)
    assert told.at(lambda field: f"file, line 3: {field}").message.startswith("file, line 3: signals[0]: no")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_what_is_no_gateway_is_told(data: Path, server: Scripted, body: bytes) -> None:
    server.status, server.body = 502, body
    told = failure(data)
    assert told.exit_code == 3
    assert "502" in told.message


def test_a_success_that_is_no_json(data: Path, server: Scripted) -> None:
    server.body = b"<html>"
    assert "does not speak like a Burnish gateway" in failure(data).message
