"""Arguments of ``mmdeploy lint`` as documents: files, directories, kustomizations, standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.lint import kustomize
from mmdeploy.lint.source import Defect, Document, Position, read_text

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
SUFFIXES = (".yaml", ".yml", ".json")
CHART_FILE = "Chart.yaml"
CHART_TEMPLATES = ("templates", "charts", "crds")
"""Directories of a Helm chart that hold templates, which are not YAML before they are rendered."""


@dataclass
class Read:
    """Everything that was read: documents as they will be applied, the kustomizations themselves, and defects."""

    documents: list[Document] = field(default_factory=list)
    kustomizations: list[Document] = field(default_factory=list)
    """``kustomization.yaml`` files and the patches they name, as written."""
    sources: list[Document] = field(default_factory=list)
    """Files that kustomizations were built from: built objects are traced back to them."""
    defects: list[Defect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(arguments: Sequence[str]) -> Read:
    """Read every argument (a path, or ``-``) as part of one deployment. Raises `UsageError` for a missing path."""
    result = Read()
    done: set[Path] = set()
    for argument in dict.fromkeys(arguments):
        try:
            _read_argument(argument, result, done)
        except OSError as problem:  # a directory on the way, or inside, that may not be searched
            at = Position(str(problem.filename or argument), 1, 1)
            result.defects.append(Defect("unparsable", f"cannot be read: {problem.strerror}", at))
    return result


def _read_argument(argument: str, result: Read, done: set[Path]) -> None:
    path = Path(argument)
    if argument == "-":
        result.documents += _read_bytes(_standard_input(), "<stdin>", result)
    elif path.is_dir():
        _read_tree(path, result, done)
    elif path.is_file() and path.name in KUSTOMIZATIONS:
        written = _read_file(path, result)
        result.kustomizations += written
        _build(path.parent, path, written, result, done)
    elif path.exists():
        result.documents += _read_file(path, result)
    else:
        raise UsageError("no such file or directory", origin=argument, next_step="mmdeploy lint --help")


def read_files(files: Mapping[str, str]) -> Read:
    """Texts by path, as one deployment: what `read` makes of a directory that holds them, built without a program.

    Kustomizations must list their resources and set a namespace, no more, as those that mmdeploy renders do.
    """
    result = Read()
    for name, text in files.items():
        if name.endswith(SUFFIXES):
            target = result.kustomizations if Path(name).name in KUSTOMIZATIONS else result.documents
            target += read_text(text, name, result.defects)
    namespaces = {
        str(Path(document.file).parent): document.value.get("namespace")
        for document in result.kustomizations
        if isinstance(document.value, dict)
    }
    for document in result.documents:
        namespace = namespaces.get(str(Path(document.file).parent))
        if namespace and isinstance(document.value, dict) and "kind" in document.value:
            document.value = kustomize.in_namespace(document.value, namespace)
    return result


def _standard_input() -> bytes:
    raw: Any = getattr(sys.stdin, "buffer", None)
    return bytes(raw.read()) if raw is not None else sys.stdin.read().encode()


def _read_file(path: Path, result: Read) -> list[Document]:
    try:
        data = path.read_bytes()
    except OSError as problem:
        result.defects.append(Defect("unparsable", f"cannot be read: {problem.strerror}", Position(str(path), 1, 1)))
        return []
    return _read_bytes(data, str(path), result)


def _read_bytes(data: bytes, name: str, result: Read) -> list[Document]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        at = Position(name, data.count(b"\n", 0, problem.start) + 1, 1)
        result.defects.append(Defect("unparsable", "is not UTF-8 text", at))
        return []
    return list(read_text(text, name, result.defects))


def _entries(directory: Path, result: Read) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as problem:
        at = Position(str(directory), 1, 1)
        result.defects.append(Defect("unparsable", f"cannot be read: {problem.strerror}", at))
        return []


def _read_tree(directory: Path, result: Read, done: set[Path]) -> None:
    """Files and kustomizations under a directory. A kustomization that another one there builds on is not built."""
    files, kustomizations = _find(directory, result, set())
    for path in files:
        result.documents += _read_file(path, result)
    written = {path: _read_file(path, result) for path in kustomizations.values()}
    used = {base for path, documents in written.items() for base in kustomize.bases(path.parent, documents)}
    for place, path in kustomizations.items():
        result.kustomizations += written[path]
        if place.resolve() not in used and not kustomize.is_component(written[path]):
            _build(place, path, written[path], result, done)


def _find(directory: Path, result: Read, seen: set[Path]) -> tuple[list[Path], dict[Path, Path]]:
    """Plain files, and kustomization files by their directory; each real directory once."""
    files: list[Path] = []
    kustomizations: dict[Path, Path] = {}
    if directory.resolve() in seen:
        return files, kustomizations
    seen.add(directory.resolve())
    entries = _entries(directory, result)
    own = next((path for path in entries if path.name in KUSTOMIZATIONS and path.is_file()), None)
    if own is not None:
        return files, {directory: own}
    chart = any(path.name == CHART_FILE for path in entries)
    for path in entries:
        if path.is_dir() and not path.name.startswith(".") and not (chart and path.name in CHART_TEMPLATES):
            inner_files, inner = _find(path, result, seen)
            files += inner_files
            kustomizations.update(inner)
        elif path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file():
            files.append(path)
    return files, kustomizations


def _build(directory: Path, kustomization: Path, written: Sequence[Document], result: Read, done: set[Path]) -> None:
    """The objects of a kustomization, once."""
    if directory.resolve() in done:
        return
    done.add(directory.resolve())
    sources = {path: _read_file(path, result) for path in _files_below(directory) if path != kustomization}
    result.sources += [document for documents in sources.values() for document in documents]
    plain = kustomize.plain(directory, written, sources, result.defects)
    if plain is not None:
        result.documents += plain
        return
    built, problem = kustomize.build(directory)
    if problem is not None:
        result.defects.append(Defect("unbuildable", problem, Position(str(kustomization), 1, 1)))
    elif built is None:
        result.notes.append(f"{directory}: neither kubectl nor kustomize is here; its files are judged as they are")
        result.documents += [document for documents in sources.values() for document in documents]
    else:
        result.documents += _traced(read_text(built, str(directory), []), result.sources)


def _traced(built: Iterator[Document], sources: Sequence[Document]) -> Iterator[Document]:
    """Built objects, with the documents that they were made from."""
    by_kind: dict[str, list[tuple[str, Document]]] = {}
    by_text: dict[str, Document] = {}
    for document in sources:
        kind, name = _identity(document)
        if kind and name:
            by_kind.setdefault(kind, []).append((name, document))
        by_text.setdefault(document.text, document)
    for document in built:
        kind, name = _identity(document)
        # Kustomize may have put a prefix before the name; the longest of several candidates is the closest.
        near = [item for item in by_kind.get(kind, ()) if name.endswith(item[0])]
        document.written = max(near, key=lambda item: len(item[0]))[1] if near else None
        data = document.value.get("data") if kind == "ConfigMap" and not near else None
        if isinstance(data, dict):
            document.files = {
                str(key): by_text[text] for key, text in data.items() if isinstance(text, str) and text in by_text
            }
        yield document


def _identity(document: Document) -> tuple[str, str]:
    value = document.value if isinstance(document.value, dict) else {}
    metadata = value.get("metadata")
    return str(value.get("kind") or ""), str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _files_below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and path.name not in KUSTOMIZATIONS:
            yield path
