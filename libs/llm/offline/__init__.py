"""The offline provider: no network, no download, deterministic."""

from libs.llm.offline.labelled_prompt import LabelSpec, parse_labels
from libs.llm.offline.model import OfflineModel

__all__ = ["LabelSpec", "OfflineModel", "parse_labels"]
