"""A rendered bundle on one page of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmdeploy.report.terminal import style, width

_LABEL = 10


def page(
    summary: Mapping[str, Any], written: Mapping[str, Any] | None, next_commands: Sequence[tuple[str, str]]
) -> str:
    """The summary, what was written (``directory`` and ``changes``), and what to run next."""
    blocks = [
        _title(summary),
        "\n".join(line for role in summary["roles"] for line in _role(role)),
        "\n".join(_router(summary["router"])),
        *([_price(summary["image1280x720"])] if summary["image1280x720"] else []),
        *(["\n".join(_written(written))] if written else []),
        "\n".join(
            _entry("next" if at == 0 else "", remark) + "\n" + " " * _LABEL + command
            for at, (remark, command) in enumerate(next_commands)
        ),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _entry(label: str, text: str) -> str:
    columns = max(40, width()) - _LABEL
    lines = textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
    first, *rest = lines
    return "\n".join([style(f"{label:<{_LABEL}}", "bold") + first, *(" " * _LABEL + line for line in rest)])


def _title(summary: Mapping[str, Any]) -> str:
    spec = summary["spec"]
    what = f"{spec['topology']} on {spec['accelerator']} ({spec['provider']}), {spec['server']}, {spec['model']}"
    return f"{style(what, 'bold')}\nrelease {spec['release']}, {summary['status']}"


def _role(role: Mapping[str, Any]) -> Iterator[str]:
    each = f"{role['acceleratorsPerPod']} {role['accelerator']}"
    pods = f"{role['replicas']} pod{'s' * (role['replicas'] != 1)} x {each}, TP {role['tensorParallelSize']}"
    yield _entry(role["name"], ", ".join([pods, role["kind"], *role["connectors"]]))
    yield _entry("", role["image"])
    yield _entry("", "ports " + ", ".join(f"{port['port']} {port['name']}" for port in role["ports"]))


def _router(router: Mapping[str, Any]) -> Iterator[str]:
    yield _entry("router", f"{router['release']}, chart {router['chart']} {router['chartVersion']}")
    for profile in router["profiles"]:
        plugins = (
            f"{item['name']} x{item['weight']}" if item["weight"] else item["name"] for item in profile["plugins"]
        )
        yield _entry("", f"{profile['name']}: {', '.join(plugins)}")


def _price(price: Mapping[str, Any]) -> str:
    return _entry(
        "price",
        f"a 1280x720 image: router {price['routerTokens']} tokens, model {price['modelTokens']} "
        f"({price['errorPercent']:+.0f} %); worst of the common sizes {price['worstErrorPercent']:+.0f} % "
        f"at {price['worstSize']}",
    )


def _written(written: Mapping[str, Any]) -> Iterator[str]:
    changes = written["changes"]
    yield _entry("written", f"{written['directory']}: " + (_count(changes) if changes else "already current"))
    for change in changes:
        yield _entry("", f"{change['verb']} {change['path']}")


def _count(changes: Sequence[Mapping[str, str]]) -> str:
    verbs = [change["verb"] for change in changes]
    words = {"create": "created", "update": "updated", "remove": "removed"}
    return ", ".join(f"{verbs.count(verb)} {word}" for verb, word in words.items() if verb in verbs)
