"""What the options of ``mmdeploy verify`` may be, and which of them have no effect beside which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import typer

LONGEST_SECONDS: Final = 86400.0
"""Of ``--timeout`` and ``--hold``."""

_ON_A_CLUSTER: Final = ("namespace", "name", "via", "metrics_token", "kubeconfig", "context")
_ONLY_WHERE_SENT: Final = ("timeout", "hold", "wait", "save")
_IDLE: Final[Mapping[str, Sequence[str]]] = {
    "evidence": (
        "bundle", "targets", "print_commands", "print_rbac", "who", "debug_logs", "yes", "model", "budget", "repeat",
        *_ONLY_WHERE_SENT, *_ON_A_CLUSTER,
    ),
    "print_rbac": (
        "targets", "print_commands", "only", "skip", "model", "budget", "repeat", "strict", "verbose", "yes",
        "metrics_token", "kubeconfig", "context", *_ONLY_WHERE_SENT,
    ),
    "targets": (*_ON_A_CLUSTER, "yes"),
    "print_commands": ("strict", "output", "debug_logs", "yes", *_ONLY_WHERE_SENT),
}  # fmt: skip
"""Option → those that have no effect beside it; the first that is given is told."""

_INSTEAD: Final = {
    ("metrics_token", "targets"): "name it in the targets file, at the picker: token: env:NAME, or file:PATH",
}
"""What to do instead of leaving one of the two out."""


def refuse_idle(context: typer.Context) -> None:
    """Raise `UsageError` where one of the options that were given has no effect beside another.

    What a variable says is a habit, not a wish: it gives way to an option, and only takes part where nothing does.
    """
    from mmdeploy.errors import UsageError

    said = {name for name in context.params if _source(context, name) == "COMMANDLINE"}
    deciding = {*said, *(name for name in context.params if _source(context, name) == "ENVIRONMENT")}
    for chosen, others in _IDLE.items():
        if chosen not in deciding or (chosen not in said and said & _IDLE.keys()):
            continue
        for other in others:
            if other in said:
                first, second = _spelled(context, other), _spelled(context, chosen)
                instead = _INSTEAD.get((other, chosen), f"leave {first} or {second} out")
                raise UsageError(f"has no effect with {second}", origin=first, next_step=instead)
    if "who" in said and "print_rbac" not in said:
        raise UsageError("belongs to --print-rbac", origin="--for")


def _source(context: typer.Context, name: str) -> str:
    found = context.get_parameter_source(name)
    return found.name if found is not None else ""


def _spelled(context: typer.Context, name: str) -> str:
    """As people type it; what came from a variable by the variable's name."""
    parameter = next(each for each in context.command.params if each.name == name)
    if _source(context, name) == "ENVIRONMENT" and parameter.envvar:
        return str(parameter.envvar)
    return parameter.opts[0] if parameter.param_type_name == "option" else name.upper()


def words(option: str, said: list[str] | None) -> tuple[str, ...]:
    """Words between commas. Raises `UsageError` for an option that is given and says nothing: it would mean all."""
    from mmdeploy.errors import UsageError

    found = tuple(word.strip() for item in said or () for word in item.split(",") if word.strip())
    if said and not found:
        raise UsageError("names no claim", origin=option, next_step=f"{option} stages,kv")
    return found


def seconds(option: str, said: str) -> float:
    """Raises `UsageError` for what is no duration."""
    from mmdeploy import quantities
    from mmdeploy.errors import UsageError

    try:
        return quantities.seconds(said)
    except ValueError:
        raise UsageError(f"{said!r} is no duration", origin=option, nearest=["30s", "5m", "1h"]) from None


def of_request(option: str, said: str) -> float:
    """Seconds of a request. Raises `UsageError` for none, and for more than a day: no request takes that."""
    from mmdeploy.errors import UsageError

    found = seconds(option, said)
    if not 0 < found <= LONGEST_SECONDS:
        raise UsageError(f"{said} is no time for a request", origin=option, nearest=["30s", "5m", "24h"])
    return found


def hold(said: str | None, claims: Sequence[str]) -> float:
    """Seconds for which a request is kept open, 0 for none. Raises `UsageError` where no claim looks at it."""
    from mmdeploy.errors import UsageError

    if said is not None and "entry" not in claims:
        raise UsageError("it serves the claim entry, which is not verified", origin="--hold", nearest=["entry"])
    return of_request("--hold", said) if said is not None else 0.0
