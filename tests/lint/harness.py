"""Base bundles, changes to them, and what lint says: shared by every test of a rule.

A base is a spec (as in ``mmdeploy.yaml``), rendered and then respelled where ``router`` names a router version: the
corpus' baselines are vLLM v0.30.0 with the router's v0.10.0 spelling, which no single release of the catalog has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mmdeploy.catalog import Catalog
from mmdeploy.lint import index, reading, run
from mmdeploy.lint.findings import Finding
from mmdeploy.render.bundle import render
from mmdeploy.render.resolve import Resolver
from mmdeploy.spec import validate

ROOT = Path(__file__).resolve().parents[2]

# What changes between the router's spellings (router.md §0, §1.1, §5.1).
RESPELLINGS: Mapping[str, Sequence[tuple[str, str]]] = {
    "v0.10.0": (
        ("apiVersion: llm-d.ai/v1\n", "apiVersion: llm-d.ai/v1alpha1\n"),
        ("--secure-serving=false", "--secure-proxy=false"),
        ("disagg-sidecar:main", "disagg-sidecar:v0.10.0"),
        ("routerChart: v0\n", "routerChart: v0.10.0\n"),
        ("version v0)", "version v0.10.0)"),
    ),
}


@cache
def resolver() -> Resolver:
    """One resolver for the whole run: layers are read once."""
    return Resolver(Catalog(ROOT / "blueprints"))


@cache
def _rendered(spec: str) -> Mapping[str, str]:
    values = yaml.safe_load(spec)
    router = values.pop("router", None)
    bundle = render(resolver().catalog, resolver().resolve(validate(values, str)))
    files = {path: text for path, text in bundle.files.items() if path.endswith(".yaml")}
    for old, new in RESPELLINGS.get(router, ()):
        files = {path: text.replace(old, new) for path, text in files.items()}
    return files


def base_files(spec: Mapping[str, Any]) -> dict[str, str]:
    """Files of a base by path. ``spec`` may say ``router: v0.10.0`` beside the fields of a spec."""
    return dict(_rendered(yaml.safe_dump(dict(spec), sort_keys=True)))


def changed(files: Mapping[str, str], change: Mapping[str, Any]) -> dict[str, str]:
    """Files after a change: path to list of ``[old, new]`` , a whole new text, or null."""
    result = dict(files)
    for path, edits in change.items():
        if edits is None:
            del result[path]
        elif isinstance(edits, str):
            result[path] = edits
        else:
            text = result[path]
            for old, new in edits:
                assert old in text, f"{path} does not hold {old!r}:\n{text}"
                text = text.replace(old, new)
            result[path] = text
    return result


def lint(files: Mapping[str, str], directory: Path, as_release: str | None = None) -> list[Finding]:
    """Findings of a directory that holds ``files``."""
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    deployment = index.index(resolver().catalog, reading.read([str(directory)]), as_release)
    return run.run(deployment, run.select([], []), strict=True).findings
