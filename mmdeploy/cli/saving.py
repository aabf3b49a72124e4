"""Evidence files of ``mmdeploy verify``: written by ``--save``, judged again by ``--evidence``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.verify.run import Outcome


def check(path: Path) -> None:
    """Raise `UsageError` where evidence could not be written: told before a request is sent."""
    import os

    from mmdeploy.errors import UsageError

    place = path if path.exists() and not path.is_file() else path.parent
    why = (
        "it is a directory" if path.is_dir()
        else "its directory is not there" if not path.parent.is_dir()
        else "" if os.access(place, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
        else "no right to write there"
    )  # fmt: skip
    if why:
        raise UsageError(f"cannot be written: {why}", origin=str(path), next_step="--save a file that can be written")


def save(path: Path, outcome: Outcome) -> None:
    """Whole or not at all."""
    import contextlib

    from mmdeploy.errors import UsageError
    from mmdeploy.report import documents

    text = documents.as_json(outcome.evidence.as_data())
    plain = path.is_file() or not path.exists()
    place = path.resolve()  # a link is written through
    new = place.with_name(f"{place.name}.new") if plain else place
    try:
        new.write_text(text, encoding="utf-8")
        if plain:
            new.replace(place)
    except OSError as problem:
        if plain:
            with contextlib.suppress(OSError):
                new.unlink()
        raise UsageError(f"cannot be written: {problem.strerror}", origin=str(path)) from None
    print(f"evidence in {path}; mmdeploy verify --evidence {path} judges it again", file=sys.stderr)


def judged_again(catalog: Catalog, path: Path, claims: tuple[str, ...], asked: bool) -> Outcome:
    """``asked``: the claims were named, so that one whose requests were never sent is told. Raises `UsageError`."""
    import json

    from mmdeploy.errors import UsageError
    from mmdeploy.verify import evidence, run
    from mmdeploy.verify.facts import Facts

    try:
        data = json.loads(path.read_bytes())
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", origin=str(path)) from None
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"is not JSON: {str(problem)[:200]}", origin=str(path)) from None
    found = evidence.load(data, str(path))
    planned = {claim for probe in found.plan for claim in probe["claims"]}
    wanted = [claim for claim in claims if asked or claim in planned]
    if not wanted:
        raise UsageError("no claim that is left was verified there", origin=str(path), nearest=sorted(planned))
    try:
        outcome = run.judge(Facts.of(catalog, found), found, wanted, planned)
        run.document(outcome, strict=False)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as problem:
        # The shape is right, and still its parts do not belong together.
        why = f"{type(problem).__name__}: {str(problem)[:200]}"
        raise UsageError(f"is no evidence that verify wrote: {why}", origin=str(path)) from None
    return outcome
