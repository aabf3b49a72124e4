"""Devices of dynamic resource allocation: their classes, and the drivers behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.subject import Subject

CATEGORY = "machines"
_DRIVER = re.compile(r"""^\s*device\.driver\s*==\s*['"]([^'"]+)['"]\s*$""")


def drivers(subject: Subject) -> tuple[dict[str, str], list[Check]]:
    """Device class → the driver whose devices it takes, and a check for each class."""
    known: dict[str, str] = {}
    found: list[Check] = []
    for name, seen in subject.seen.device_classes.items():
        title = f"device class {name} exists"
        if seen.value is not None:
            driver = driver_of(seen.value)
            found.append(Check(CATEGORY, title, "ok") if driver else _unreadable(title))
            known |= {name: driver or name}
        elif seen.absent:
            hint = "install the device driver (DRA) of that name, or render for another accelerator"
            found.append(Check(CATEGORY, title, "error", "no driver has made it: pods would wait for ever", hint))
            known[name] = name
        else:
            found.append(Check(CATEGORY, title, "warning", seen.why, "ask an administrator"))
            known[name] = name
    return known, found


def _unreadable(title: str) -> Check:
    return Check(
        CATEGORY, title, "warning", "its selectors are more than one driver's name: the devices of the driver of that "
        "name are counted, and some may not fit", "look at the pods' events after apply",
    )  # fmt: skip


def driver_of(device_class: Mapping[str, Any]) -> str:
    """The driver that a class names in its one selector; empty for a class that selects otherwise."""
    selectors: list[Any] = (device_class.get("spec") or {}).get("selectors") or []
    if len(selectors) != 1:
        return ""
    expression = ((selectors[0] or {}).get("cel") or {}).get("expression", "")
    match = _DRIVER.match(str(expression))
    return match[1] if match else ""


__all__ = ["driver_of", "drivers"]
