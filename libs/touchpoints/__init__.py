"""What every service knows of touchpoints: one projection of `touchpoint.registered`, a copy in each one's schema."""

from libs.touchpoints.handlers import FollowUp, on_registered
from libs.touchpoints.model import KnownTouchpoint
from libs.touchpoints.store import get, keep, scopes

__all__ = ["FollowUp", "KnownTouchpoint", "get", "keep", "on_registered", "scopes"]
