"""Tokens that nobody honest sends: each is turned away, none is an error, and nothing of it is repeated."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt import PyJWK

from libs.auth.claims import ClaimNames, caller_of
from libs.auth.errors import NotAuthenticated
from libs.auth.keys import JwksKeys
from libs.auth.signing import jwks, new_signing_key
from libs.auth.tokens import Verifier, mint

KEY = new_signing_key()


class Published:
    """The one key that is published."""

    async def key(self, kid: str) -> PyJWK:
        if kid != KEY.kid:
            raise NotAuthenticated("no such key")
        return PyJWK(KEY.public())


VERIFIER = Verifier(Published(), "burnish", "burnish")
GOOD = {"iss": "burnish", "aud": "burnish", "sub": "ada", "exp": int(time.time()) + 600}


def signed(payload: bytes, **header: Any) -> str:
    """A token over exactly these bytes, by the right key."""
    head = json.dumps({"alg": "ES256", "typ": "JWT", "kid": KEY.kid, **header}).encode()
    body = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (head, payload))
    algorithm = jwt.get_algorithm_by_name("ES256")
    signature = algorithm.sign(body, PyJWK(KEY.jwk).key)
    return f"{body.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def with_claim(name: str, literal: str) -> str:
    """A token whose claim is this piece of JSON, whatever it is."""
    kept = {key: value for key, value in GOOD.items() if key != name}
    return signed(f'{json.dumps(kept)[:-1]}, "{name}": {literal}}}'.encode())


async def refused(token: str) -> NotAuthenticated:
    with pytest.raises(NotAuthenticated) as no:
        await VERIFIER.caller(f"Bearer {token}")
    return no.value


async def test_the_control_holds() -> None:
    assert (await VERIFIER.caller(f"Bearer {signed(json.dumps(GOOD).encode())}")).subject == "ada"


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "literal",
    ["1e400", "-1e400", "NaN", "Infinity", "-1", "true", '"9999999999"', "[]", "{}", "9" * 5_000, "1e300", "null"],
)
async def test_a_time_that_is_none_does_not_hold(name: str, literal: str) -> None:
    await refused(with_claim(name, literal))


@pytest.mark.parametrize(
    "literal",
    [
        "5",
        "true",
        "null",
        "[]",
        '""',
        '" "',
        '"a\\u0000b"',
        '"a\\u202eb"',
        '"\\ud800"',
        '"a\\u200bb"',
        f'"{"x" * 201}"',
    ],
)
async def test_a_subject_that_nobody_can_read_does_not_hold(literal: str) -> None:
    await refused(with_claim("sub", literal))


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("org", '{"name": "acme"}'),
        ("org", "[]"),
        ("org", '"a\\nb"'),
        ("workspaces", '"**"'),
        ("workspaces", '["*"]'),
        ("workspaces", "[null]"),
        ("workspaces", '["{6b8e6b8e-6b8e-4b8e-8b8e-6b8e6b8e6b8e}"]'),
        ("roles", '"admin"'),
        ("roles", '{"admin": true}'),
        ("roles", '[["admin"]]'),
        ("scope", "5"),
        ("scope", '{"prompts:read": 1}'),
        ("iss", '["burnish"]'),
        ("iss", '"burnish "'),
        ("aud", '{"burnish": 1}'),
        ("aud", "[[]]"),
    ],
)
async def test_a_claim_of_another_kind_does_not_hold(name: str, literal: str) -> None:
    await refused(with_claim(name, literal))


@pytest.mark.parametrize("where", ["payload", "header"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
async def test_json_that_is_nested_deeply_is_turned_away(where: str, opening: bytes) -> None:
    deep = opening * (5_000 // len(opening))
    if where == "payload":
        await refused(signed(deep))
        return
    part = base64.urlsafe_b64encode(deep).rstrip(b"=").decode()
    await refused(f"{part}.e30.e30")


@pytest.mark.parametrize(
    "payload", [b"", b"5", b"[]", b"null", b'"x"', b"\xff\xfe", b"\x00", b"{}", b'{"exp": 1' + b" " * 3_000]
)
async def test_a_payload_that_is_no_claims_does_not_hold(payload: bytes) -> None:
    await refused(signed(payload))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "NONE"},
        {"alg": "HS256"},
        {"alg": "ES384"},
        {"alg": "RS256"},
        {"alg": None},
        {"alg": ["ES256"]},
        {"alg": {"ES256": 1}},
        {"kid": None},
        {"kid": 5},
        {"kid": ["x"]},
        {"kid": ""},
        {"kid": "x" * 5_000},
        {"kid": "../../etc/passwd\x00"},
        {"crit": ["exp"]},
        {"crit": []},
        {"b64": False},
        {"typ": "logout+jwt"},
        {"typ": 5},
    ],
    ids=str,
)
async def test_a_header_that_asks_for_something_else_does_not_hold(header: dict[str, Any]) -> None:
    await refused(signed(json.dumps(GOOD).encode(), **header))


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer \u00e9",
        "Bearer ü.ü.ü",
        "Bearer a\x00b.c.d",
        "Bearer " + "." * 8_000,
        "Bearer " + "a" * 1_000_000,
        "Bearer a b c",
        "bearer\ta.b.c",
        "Bearer \ud800",
        "Bearer ..",
    ],
)
async def test_what_no_header_should_carry_is_turned_away(authorization: str) -> None:
    with pytest.raises(NotAuthenticated):
        await VERIFIER.caller(authorization)


@given(st.text(max_size=300))
async def test_no_text_is_an_error(text: str) -> None:
    with pytest.raises(NotAuthenticated):
        await VERIFIER.caller(f"Bearer {text}")


@given(
    claims=st.dictionaries(
        st.sampled_from(["sub", "org", "workspaces", "roles", "scope", "exp", "nbf", "iat", "iss", "aud"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
async def test_whatever_an_issuer_signs_it_holds_or_is_turned_away(claims: dict[str, Any]) -> None:
    token = signed(json.dumps({**GOOD, **claims}).encode())
    if len(token) > 8_192:
        return
    try:
        caller = await VERIFIER.caller(f"Bearer {token}")
    except NotAuthenticated:
        return
    assert caller.subject.isprintable()


async def test_an_error_repeats_nothing_of_the_token() -> None:
    canary = "canary-7f3a"
    for token in (
        signed(json.dumps({**GOOD, "sub": canary * 30}).encode()),
        signed(json.dumps({**GOOD, "org": [canary]}).encode()),
        signed(json.dumps({**GOOD, "iss": canary}).encode()),
        signed(json.dumps(GOOD).encode(), kid=canary),
        signed(json.dumps(GOOD).encode(), alg=canary),
        canary,
    ):
        error = await refused(token)
        assert canary not in str(error)
        assert token not in repr(error)


async def test_where_a_token_says_that_its_key_is_nobody_looks(tmp_path: Any) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(KEY))
    verifier = Verifier(JwksKeys(str(path)), "burnish", "burnish")
    other = new_signing_key()
    published = {"jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/x", "jwk": other.public(), "x5c": ["x"]}
    token = jwt.encode(GOOD, PyJWK(other.jwk).key, algorithm="ES256", headers={"kid": KEY.kid, **published})
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {token}")


# --- an issuer's own names --------------------------------------------------------------------------------


def test_an_issuers_names_for_claims_and_roles_are_read_as_configured() -> None:
    names = ClaimNames(
        organization="tenant", roles="realm_access.roles", scopes="scp", role_names={"burnish-admins": "admin"}
    )
    claims = {
        "sub": "ada",
        "tenant": "acme",
        "realm_access": {"roles": ["admin", "burnish-admins", "offline_access"]},
        "scp": ["prompts:read"],
        "roles": ["owner"],
    }
    caller = caller_of(claims, names)
    assert caller.organization == "acme"
    assert caller.roles == {"admin"}
    assert caller.scopes == {"prompts:read"}
    without = caller_of({**claims, "realm_access": {"roles": ["admin"]}}, names)
    assert without.roles == frozenset()  # an issuer's own `admin` is not ours
    url = ClaimNames(roles="https://burnish.example/roles")
    assert caller_of({"sub": "ada", "https://burnish.example/roles": ["editor"]}, url).has_role({"editor", "admin"})


@pytest.mark.parametrize("nested", [None, 5, [], {"roles": "admin"}, {"roles": None}])
def test_a_path_that_leads_to_no_roles_gives_none_or_is_refused(nested: object) -> None:
    names = ClaimNames(roles="realm_access.roles")
    try:
        assert caller_of({"sub": "ada", "realm_access": nested}, names).roles == frozenset()
    except ValueError:
        assert isinstance(nested, dict)


async def test_a_minted_token_carries_roles_and_scopes() -> None:
    token = mint(KEY, "ada", organization="acme", roles=["owner", "editor"], scopes=["signals:write:self"])
    caller = await VERIFIER.caller(f"Bearer {token}")
    assert caller.roles == {"owner", "editor"}
    assert caller.scopes == {"signals:write:self"}
    assert not caller.has_role({"admin"})
