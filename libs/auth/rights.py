"""What a token can say that its holder may do: roles of people, scopes of applications."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["owner", "supervisor", "admin", "editor"]
Scope = Literal[
    "signals:write", "signals:write:self", "prompts:read", "exposures:write", "pairs:sensitive", "pairs:draft"
]

ROLES: tuple[Role, ...] = get_args(Role)
SCOPES: tuple[Scope, ...] = get_args(Scope)

ADMIN: Role = "admin"
"""May do everything in the refinement loop."""
REFINERS: frozenset[Role] = frozenset({"owner", "supervisor", "admin"})
"""May refine an agent by conversation."""
EDITORS: frozenset[Role] = frozenset({"editor", "admin"})
"""May read and write pairs; only an admin deletes one."""
