"""The offline provider: no network, no download, deterministic."""

from libs.llm.offline.labelled_prompt import LabelSpec, parse_labels
from libs.llm.offline.model import OfflineModel, open_offline

__all__ = ["LabelSpec", "OfflineModel", "open_offline", "parse_labels"]
