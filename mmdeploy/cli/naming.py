"""Names that are given as options: they become parts of addresses, so nothing but a name goes on."""

from __future__ import annotations

import re
from typing import Final

from mmdeploy.errors import UsageError

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1123, as Kubernetes has it for namespaces."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""The same with dots, as Kubernetes has it for most objects."""


def namespace(said: str | None) -> str | None:
    """For ``--namespace``. Raises `UsageError` for what can be no namespace's name."""
    return _checked(said, _LABEL, "--namespace", "a namespace", "lower-case letters, digits and dashes, 63 at most")


def name(said: str | None) -> str | None:
    """For ``--name``. Raises `UsageError` for what can be no object's name."""
    return _checked(said, _NAME, "--name", "a deployment", "lower-case letters, digits, dashes and dots")


def _checked(said: str | None, form: re.Pattern[str], option: str, what: str, how: str) -> str | None:
    if said is not None and form.fullmatch(said) is None:
        raise UsageError(f"{said[:80]!r} can be no name of {what}", origin=option, next_step=how)
    return said


__all__ = ["name", "namespace"]
