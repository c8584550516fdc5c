"""Where a gateway is and who is calling, checked before anything is sent. Pure."""

from __future__ import annotations

import re
from typing import NoReturn
from urllib.parse import urlsplit

import httpx

from burnish_sdk.errors import ConfigurationError

TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16000}", re.ASCII)


def base_url(url: str) -> str:
    """The URL without a last slash. Raises ConfigurationError; what is wrong is said without the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
        httpx.URL(url)
    except (ValueError, TypeError, AttributeError, httpx.InvalidURL):
        _no_url("it is no URL")
    if parts.username is not None or parts.password is not None:
        _no_url("it holds a name or a password; leave it out, the token says who you are")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        _no_url("it begins with http:// or https:// and a host")
    if port == 0:
        _no_url("its port is between 1 and 65535")
    if parts.query or parts.fragment or any(character.isspace() for character in url):
        _no_url("it ends with the host, the port, or the path before /api")
    return url.rstrip("/")


def token(value: str) -> str:
    """The token, if a header can carry it. Raises ConfigurationError, which never shows it."""
    if not isinstance(value, str) or not TOKEN.fullmatch(value):
        raise ConfigurationError("the token is none: it has characters that no token has, or too many, or none")
    return value


def _no_url(why: str) -> NoReturn:
    raise ConfigurationError(f"the base URL cannot be used: {why}; one such as http://127.0.0.1:8320 was expected", why)
