"""Models behind one small interface and one metered pool. `offline` is the embedded default."""

from libs.llm.account import Account, FreeModelsOnly, Order, Settled
from libs.llm.base import (
    NOTHING_USED,
    Declined,
    ManyAtOnce,
    Model,
    ModelError,
    ModelReply,
    ModelRequest,
    PromptError,
    UnknownPrice,
    Usage,
)
from libs.llm.budget import Budget, OverBudget, PriceUnknownYet, Spent
from libs.llm.many import Keep, Replies
from libs.llm.offline import LabelSpec, OfflineModel, parse_labels
from libs.llm.parameters import CallParameters
from libs.llm.pool import ModelPool
from libs.llm.prompt import join_parts
from libs.llm.providers import OpenModel, known_providers, open_model

__all__ = [
    "NOTHING_USED",
    "Account",
    "Budget",
    "CallParameters",
    "Declined",
    "FreeModelsOnly",
    "Keep",
    "LabelSpec",
    "ManyAtOnce",
    "Model",
    "ModelError",
    "ModelPool",
    "ModelReply",
    "ModelRequest",
    "OfflineModel",
    "OpenModel",
    "Order",
    "OverBudget",
    "PriceUnknownYet",
    "PromptError",
    "Replies",
    "Settled",
    "Spent",
    "UnknownPrice",
    "Usage",
    "join_parts",
    "known_providers",
    "open_model",
    "parse_labels",
]
