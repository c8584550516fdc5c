"""Prompt storage adapters: one interface over every place where a touchpoint's prompt may live."""

from services.registry.adapters.base import (
    DRIFT_WARNING,
    MAX_TEXT_BYTES,
    Activation,
    CurrentPrompt,
    Draft,
    Drift,
    Intent,
    PromptPart,
    PromptStorageAdapter,
    RollbackProposal,
    StorageError,
    StorageErrorCode,
    StoredVersion,
    Tier,
    content_sha256,
    measure_drift,
)
from services.registry.adapters.skill_file import SkillFileAdapter
from services.registry.git.run import Identity

__all__ = [
    "DRIFT_WARNING",
    "MAX_TEXT_BYTES",
    "Activation",
    "CurrentPrompt",
    "Draft",
    "Drift",
    "Identity",
    "Intent",
    "PromptPart",
    "PromptStorageAdapter",
    "RollbackProposal",
    "SkillFileAdapter",
    "StorageError",
    "StorageErrorCode",
    "StoredVersion",
    "Tier",
    "content_sha256",
    "measure_drift",
]
