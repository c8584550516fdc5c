"""Typed client of Burnish: push quality signals, read live prompts from a warm cache."""

from burnish_sdk.client import AsyncClient, Client
from burnish_sdk.errors import (
    BurnishError,
    Busy,
    ConfigurationError,
    Conflict,
    FieldError,
    Invalid,
    NoHttp,
    NotAllowed,
    NotFound,
    Problem,
    ServerError,
    TimedOut,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from burnish_sdk.models import (
    Accepted,
    EvidenceRef,
    LivePrompt,
    PromptPart,
    Signal,
    SignalCounts,
    SignalPage,
    SignalPayload,
    StoredSignal,
    TouchpointCounts,
)
from burnish_sdk.prompts import Prompt, Refreshing
from burnish_sdk.retry import Retry
from burnish_sdk.transport import Options

__all__ = [
    "Accepted",
    "AsyncClient",
    "BurnishError",
    "Busy",
    "Client",
    "ConfigurationError",
    "Conflict",
    "EvidenceRef",
    "FieldError",
    "Invalid",
    "LivePrompt",
    "NoHttp",
    "NotAllowed",
    "NotFound",
    "Options",
    "Problem",
    "Prompt",
    "PromptPart",
    "Refreshing",
    "Retry",
    "ServerError",
    "Signal",
    "SignalCounts",
    "SignalPage",
    "SignalPayload",
    "StoredSignal",
    "TimedOut",
    "TouchpointCounts",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
]
