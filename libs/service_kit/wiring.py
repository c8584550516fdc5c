"""A handler as FastStream calls it: checked when it is wired, so that nothing is found out at the first message.

FastStream takes whatever a signature names and nobody gave for a field of the message. A forgotten dependency would
then make every message look bad, and bury them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from fast_depends.dependencies import Dependant
from fast_depends.library import CustomField

if TYPE_CHECKING:
    from fast_depends.core import CallModel
    from faststream import ContextRepo
    from faststream.nats.subscriber.usecases import LogicSubscriber

WITH_EACH_MESSAGE = frozenset({"message", "handler_", "logger", "log_context", "broker"})

Handler = Callable[..., Awaitable[Any]]


class WiringError(TypeError):
    """A handler does not fit what `app.py` wires it to; the text names both and says what would be right."""


def bound(handler: Handler, what: str, takes: Sequence[object], dependencies: Mapping[str, Any]) -> Handler:
    """The handler with its dependencies given; what is left beside the message FastStream injects.

    `takes` are the annotations that its first parameter may have, the usual one first. Raises WiringError.
    """
    parameters = _parameters(handler, what)
    name = getattr(handler, "__qualname__", repr(handler))
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise WiringError(f"{name} takes no message, but {what} calls it with {_text(takes[0])}")
    message, *others = parameters
    if message.annotation not in takes:
        found = "is not annotated" if message.annotation is message.empty else f"is {_text(message.annotation)}"
        raise WiringError(f"{name}: its first parameter {message.name!r} {found}; {what} gives it {_text(takes[0])}")
    injected = _injected(name, what, others, dependencies)

    @wraps(handler)
    async def call(*message: Any, **found: Any) -> Any:
        return await handler(*message, **found, **dependencies)

    call.__signature__ = inspect.Signature([message, *injected])  # type: ignore[attr-defined]
    return call


def _parameters(handler: Handler, what: str) -> list[inspect.Parameter]:
    called = handler if inspect.isroutine(handler) else getattr(handler, "func", type(handler).__call__)
    if not inspect.iscoroutinefunction(called):
        raise WiringError(f"{what} needs an async function, and {handler!r} is none")
    try:
        return list(inspect.signature(handler, eval_str=True).parameters.values())
    except NameError as error:
        raise WiringError(f"{handler!r}: {error}; what its signature names must be imported at run time") from error


def _injected(
    name: str, what: str, others: Sequence[inspect.Parameter], dependencies: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """The parameters that FastStream fills. Raises WiringError for one that nobody would."""
    left = dict(dependencies)
    injected = []
    for parameter in others:
        if parameter.kind is parameter.VAR_KEYWORD:
            left.clear()
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise WiringError(f"{name}: {parameter} cannot be given by name; dependencies are keywords")
        elif parameter.name in left:
            del left[parameter.name]
        elif injects(parameter):
            injected.append(parameter)
        elif parameter.default is parameter.empty:
            raise WiringError(f"{name} needs {parameter.name!r}, which {what} is not given in app.py")
    if left:
        raise WiringError(f"{name} takes no {', '.join(map(repr, left))}, which {what} is given in app.py")
    return injected


def injects(parameter: inspect.Parameter) -> list[Dependant | CustomField]:
    """FastStream's markers (`Context()`, `Depends(...)`) of a parameter: none for one that is not its to fill."""
    found = [parameter.default]
    if get_origin(parameter.annotation) is Annotated:
        found += get_args(parameter.annotation)[1:]
    return [each for each in found if isinstance(each, Dependant | CustomField)]


def check_filled(subscriber: LogicSubscriber[Any], context: ContextRepo, what: str) -> None:
    """Raise WiringError for what the one handler of a subscriber takes that FastStream could not give it.

    Asked when a service starts: what is put into the context may be put there after the handler was wired.
    """
    (handler,) = subscriber.calls
    if handler.dependant is not None and (missing := _unfilled(handler.dependant, context)):
        raise WiringError(f"{handler.name} needs {', '.join(missing)}, which nobody gives it: {what}")


def _unfilled(call: CallModel, context: ContextRepo) -> list[str]:
    """What a handler takes, by itself or through `Depends`, that is neither the message nor in FastStream's context."""
    _message, *fields = call.flat_params
    return [f"{field.field_name!r}" for field in fields] + _absent(call, context)


def _absent(call: CallModel, context: ContextRepo) -> list[str]:
    names = [_context_name(field) for field in call.custom_fields.values() if field.required]
    absent = [f"Context({name!r})" for name in names if name and context.get(name) is None]
    for key in (*call.dependencies.values(), *call.extra_dependencies):
        absent += _absent(call.dependency_provider.get_dependant(key), context)
    return absent


def _context_name(field: CustomField) -> str | None:
    """The first part of what a `Context` marker names; None for what comes with each message."""
    if getattr(field, "prefix", "") or getattr(field, "initial", None):
        return None
    name = str(getattr(field, "name", "") or field.param_name).partition(".")[0]
    return None if name in WITH_EACH_MESSAGE else name


def _text(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
