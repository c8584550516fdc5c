"""How the gateway is configured for an issuer with names of its own."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.gateway.settings import Settings

NEEDED = {"database_url": "postgresql://h/b", "nats_url": "nats://h:1", "nats_user": "gateway", "nats_password": "p"}


def test_an_issuers_names_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_JWT_ROLES_CLAIM", "realm_access.roles")
    monkeypatch.setenv("BURNISH_JWT_ROLE_NAMES", "burnish-admins=admin, a=b=editor")
    names = Settings(**NEEDED).claim_names  # type: ignore[arg-type]
    assert (names.roles, names.organization) == ("realm_access.roles", "org")
    assert names.role_names == {"burnish-admins": "admin", "a=b": "editor"}


@pytest.mark.parametrize("value", ["admins", "admins=root", "=admin", "a=admin,b"])
def test_names_that_lead_nowhere_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("BURNISH_JWT_ROLE_NAMES", value)
    with pytest.raises(ValidationError, match="THEIRS=OURS"):
        Settings(**NEEDED)  # type: ignore[arg-type]
