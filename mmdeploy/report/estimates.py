"""Estimates for people: items with the reason beside them, recorded traffic, and a suggestion to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmdeploy.report.documents import as_yaml
from mmdeploy.report.terminal import WIDE, style, width

_LABEL = 11
_COUNTS_BY = {
    "area": "counts by area",
    "fixed": "takes about the same for every picture",
    "tiles": "cuts pictures into tiles by aspect ratio",
}


def items_page(answer: Mapping[str, Any]) -> str:
    """Items, their sum, and what holds over common sizes."""
    blocks = [_head(answer), _table(answer["items"], answer["total"])]
    if answer["pairing"]:
        blocks.append(pairing_lines(answer["pairing"]))
    return "\n".join(block for block in blocks if block)


def traffic_page(answer: Mapping[str, Any]) -> str:
    """Counts, errors, and the suggestion."""
    lines, items, total = answer["lines"], answer["items"], answer["total"]
    kinds = [f"{items[kind]:,} {kind}" for kind in ("image", "video", "audio") if items[kind]]
    bad = [f"{lines[name]:,} {name}" for name in ("rejected", "unreadable") if lines[name]]
    requests = f" ({lines['requests']:,} request{'s' * (lines['requests'] > 1)})" if lines["requests"] else ""
    read = f"{lines['read']:,}{requests}"
    blocks = [
        _head(answer),
        _entry("lines", ", ".join([read, *bad])),
        "".join(_entry("", f"line {each['line']}: {each['problem']}") for each in lines["problems"]),
        _entry("items", ", ".join(kinds) or "no media"),
        "".join(_entry("", text) for text in _unseen(items)),
        _entry("tokens", _tokens(total)),
        "".join(_entry("", text) for text in _apart(total, items)),
        _spread(answer["errors"]) if total["items"] else "",
    ]
    suggestion = answer["suggestion"]
    return "".join(block for block in blocks if block) + (f"\n{suggestion_page(suggestion)}" if suggestion else "")


def traffic_rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answer as rows of a field's path and its value."""
    kept = {key: answer[key] for key in ("lines", "items", "total", "errors", "suggestion")}
    return [{"field": path, "value": value} for path, value in _flat("", kept)]


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield from _flat(f"{path}.{at}", item)
    else:
        yield path, None if isinstance(value, Mapping | list) else value


def suggestion_page(suggestion: Mapping[str, Any]) -> str:
    """The block with what it does to the error, as YAML that can be pasted or read by ``render --estimator``."""
    before, after = suggestion["mean_absolute_error_before_tokens"], suggestion["mean_absolute_error_after_tokens"]
    comments = []
    if after is not None:
        was = f"was {before:,.1f} tokens an item" if before is not None else "not compared"
        comments.append(f"mean absolute error: {was}, is {after:,.1f} with this block ({suggestion['items']:,} items)")
    if suggestion["sampled"]:
        comments.append("worked out from an even sample of the items, which have too many different sizes to keep")
    comments += suggestion["remarks"]
    freer = suggestion["with_allow_mismatch"]
    if freer:
        comments.append(
            f"{freer['mean_absolute_error_after_tokens']:,.1f} with the image section below, which other sizes do not "
            "bear out: render takes it with --allow-mismatch only"
        )
        comments += as_yaml(freer["image"]).splitlines()
    return "".join(f"# {line}\n" for line in comments) + as_yaml({"estimate": suggestion["estimate"]})


def pairing_lines(pairing: Mapping[str, Any]) -> str:
    """How far the estimator is off over common sizes."""
    worst = (
        f"{percent(pairing['worst_error_percent'])} at {pairing['worst_width_pixels']}x{pairing['worst_height_pixels']}"
    )
    colour = "green" if pairing["within_tolerance"] else "red"
    said = f"over common sizes the error is {pairing['typical_error_percent']:.1f} % typically, {worst} at worst"
    return _entry("pairing", said, colour) + (_entry("", pairing["advice"]) if pairing["advice"] else "")


def percent(value: float | None) -> str:
    """An error with its sign."""
    if value is None:
        return "-"
    if abs(value) < 0.05:
        return "0.0 %"
    return f"{value:+,.1f} %" if abs(value) < 99.95 else f"{value:+,.0f} %"


def colour_of(error: float | None) -> str:
    """Green up to 5 %, yellow up to 20 %, red beyond."""
    if error is None:
        return "dim"
    return "green" if abs(error) <= 5 else "yellow" if abs(error) <= 20 else "red"


def _head(answer: Mapping[str, Any]) -> str:
    model, estimator = answer["model"], answer["estimator"]
    name = model["name"] if model["name"] == model["setting"] else f"{model['name']} ({model['setting']})"
    text = _entry("model", f"{name}: {_COUNTS_BY[model['counts_by']]}")
    if model["confidence"]:
        text += _entry("", f"not certain: {model['confidence']}")
    return text + _entry("estimator", f"{estimator['origin']}: {_estimator(estimator)}")


def _estimator(estimator: Mapping[str, Any]) -> str:
    if estimator["precise"]:
        return "precise routing, the router asks a model server for real token counts"
    image = (estimator["estimate"] or {}).get("image") or {}
    if image.get("mode") == "static":
        return f"{(image.get('static') or {}).get('staticToken', 1)} tokens a picture"
    size = image.get("defaultResolution") or {}
    factor = (image.get("dynamic") or {}).get("factor") or 1024
    return (
        f"{factor} pixels a token, {size.get('width') or 640}x{size.get('height') or 360} for pictures it does not see"
    )


def _table(items: Sequence[Mapping[str, Any]], total: Mapping[str, Any]) -> str:
    left_out = total["items_without_model_tokens"]
    why = [f"{left_out:,} item{'s' * (left_out > 1)} without a true count left out of the error"] if left_out else []
    rows = [*items, {**total, "label": "total", "why": why, "model_text_tokens": 0}] if len(items) > 1 else items
    cells = [(row["label"], _tokens_cell(row, "router_tokens"), _tokens_cell(row, "model_tokens"),
              percent(row["error_percent"])) for row in rows]  # fmt: skip
    if not cells:
        return ""
    headings = ("item", "router", "model", "error")
    widest = [max(len(row[at]) for row in [headings, *cells]) for at in range(4)]
    widest[0] = min(widest[0], max(16, width() - sum(widest[1:]) - 30)) if width() != WIDE else widest[0]
    lines = [style(_line(headings, widest) + "  why", "bold")]
    for row, cell in zip(rows, cells, strict=True):
        lines += _row(row, cell, widest)
    return "".join(line.rstrip() + "\n" for line in lines)


def _row(row: Mapping[str, Any], cell: tuple[str, str, str, str], widest: list[int]) -> Iterator[str]:
    """One item: its reasons wrapped beside it, its name on a line of its own when it is long."""
    stamps = row["model_text_tokens"]
    why = [*row["why"], *([f"and {stamps:,} tokens of time stamps around the frames"] if stamps else [])]
    left = sum(widest) + 2 * len(widest)
    room = max(24, width() - left)
    text = textwrap.wrap("; ".join(why), room, break_long_words=False, break_on_hyphens=False) or [""]
    label = cell[0]
    if len(label) > widest[0]:
        yield label
        label = ""
    numbers = _line((label, *cell[1:3]), widest)
    error = style(f"{cell[3]:>{widest[3]}}", colour_of(row["error_percent"]))
    yield f"{numbers}  {error}  {text[0]}"
    for more in text[1:]:
        yield " " * left + more


def _line(cells: Sequence[str], widest: Sequence[int]) -> str:
    first, *rest = cells
    return "  ".join(
        [f"{first:<{widest[0]}}", *(f"{cell:>{size}}" for cell, size in zip(rest, widest[1:], strict=False))]
    )


def _tokens_cell(row: Mapping[str, Any], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,}"


def _entry(label: str, text: str, colour: str | None = None) -> str:
    columns = max(40, width()) - _LABEL
    first, *rest = textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [style(f"{label:<{_LABEL}}", "bold") + (style(first, colour) if colour else first)]
    lines += [" " * _LABEL + (style(line, colour) if colour else line) for line in rest]
    return "".join(line + "\n" for line in lines)


def _unseen(items: Mapping[str, Any]) -> Iterator[str]:
    if items["unseen_by_router"]:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in items["unseen_reasons"].items())
        share = f"{items['unseen_by_router']:,} ({items['unseen_by_router_percent']:.1f} %)"
        yield f"the router cannot see {share}: {reasons}"
    if items["unpriced"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in items["unpriced"].items())
        yield f"counted as no medium: {kinds}"
    if items["refused_by_model"]:
        yield f"the model refuses {items['refused_by_model']:,} for their aspect ratio"


def _tokens(total: Mapping[str, Any]) -> str:
    if not total["items"]:
        return "no item's true count is known"
    error = style(percent(total["error_percent"]), colour_of(total["error_percent"]))
    return (
        f"router {total['router_tokens']:,}, model {total['model_tokens']:,}, {error} "
        f"over {total['items']:,} items whose true count is known"
    )


def _apart(total: Mapping[str, Any], items: Mapping[str, Any]) -> Iterator[str]:
    if items["without_model_tokens"]:
        yield (
            f"{items['without_model_tokens']:,} more whose true count is not known are priced "
            f"{total['uncounted_items_router_tokens']:,}"
        )
    if total["text_router_tokens"]:
        yield f"the router counts {total['text_router_tokens']:,} for the text around them"


def _spread(errors: Mapping[str, Any]) -> str:
    """Quantiles, and a bar for each band."""
    quantiles = ", ".join(f"{name} {percent(value)}" for name, value in errors["quantiles_percent"].items())
    lines = [_entry("errors", f"{errors['mean_absolute_tokens']:,.1f} tokens off on average; {quantiles}")]
    most = max(band["items"] for band in errors["bands"])
    for band in errors["bands"]:
        low, high = band["from_percent"], band["below_percent"]
        name = f"{low:+.0f} .. {high:+.0f} %" if high is not None else f"above {low:+.0f} %"
        worst = 0 if low < 0 < (high or 0) else min(abs(low), abs(high if high is not None else low))
        bar = style("#" * -(-band["items"] * 30 // most), colour_of(worst + 0.1))
        lines.append(f"{'':<{_LABEL}}{name:<15}{band['items']:>11,}  {bar}".rstrip() + "\n")
    return "".join(lines)
