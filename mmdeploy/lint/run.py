"""Run the rules over a deployment, and honour what people asked to be left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.lint.findings import GROUPS, Finding, Found, Level, Rule, as_finding, rules
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.secrets import shown
from mmdeploy.lint.shares import GROUPS as GROUPS_OF_ROUTERS
from mmdeploy.lint.source import Document, InText, Position, dig

ANNOTATION = "mmdeploy.llm-d.ai/ignore"
"""Annotation on an object: codes, separated by commas or spaces, then a reason."""
UNUSED_IGNORE = "MMD904"
_MARK = "mmdeploy:"
_COMMENT = re.compile(r"#\s*mmdeploy:\s*ignore\b(?P<rest>.*)$")
_CODE = re.compile(r"MMD\d{3}")


@dataclass
class Ignore:
    """A request to pass over codes: on a line of a file, or in a whole object."""

    codes: frozenset[str]
    position: Position
    document: Document | None
    """The object that carries the annotation; None for a comment on a line."""
    used: bool = False
    line: str = ""
    """Text of the line that it stands on."""

    def covers(self, finding: Finding, found: Found) -> bool:
        """Whether it speaks of this finding. A script is silenced where it begins, too: its lines take no comments."""
        if finding.code not in self.codes:
            return False
        document = found.document
        if self.document is not None:
            return self.document in (document, document.parent[0] if document.parent else None)
        # A comment that stands alone speaks of the line below it.
        alone = self.line.lstrip().startswith("#")
        lines = (self.position.line, self.position.line + 1) if alone else (self.position.line,)
        places = [finding.position, *_beginning(found)]
        return any(place.file == self.position.file and place.line in lines for place in places)


def _beginning(found: Found) -> Iterator[Position]:
    """Where the text begins that a find is inside of."""
    if found.path and isinstance(found.path[-1], InText):
        yield found.document.position((*found.path[:-1], int(found.path[-1])))


@dataclass
class Result:
    """Findings in order of file and line, and what was passed over."""

    findings: list[Finding] = field(default_factory=list)
    ignored: int = 0
    known: int = 0
    """Findings that the baseline lists."""
    broken: list[str] = field(default_factory=list)
    """Rules that raised an exception, and which."""


def select(chosen: Sequence[str], ignored: Sequence[str]) -> list[Rule]:
    """Rules by codes (``MMD412``) or groups (``MMD4``, ``4``). Raises `UsageError` for a word that is neither."""
    wanted = _codes(chosen, "--select") if chosen else {item.code for item in rules()}
    unwanted = _codes(ignored, "--ignore")
    return [item for item in rules() if item.code in wanted - unwanted]


def _codes(words: Iterable[str], option: str) -> set[str]:
    found: set[str] = set()
    for word in words:
        for part in re.split(r"[,\s]+", word.strip(", \t\n")) or [word]:
            prefix = part.upper() if part.upper().startswith("MMD") else f"MMD{part}"
            matching = {item.code for item in rules() if item.code.startswith(prefix)}
            # The bare "MMD" and the empty word begin every code: they name none.
            if len(prefix) < 4 or not matching or (len(prefix) == 4 and prefix[3] not in GROUPS):
                raise UsageError(
                    f"{part!r} is neither a code nor a group of codes", origin=option,
                    next_step="mmdeploy explain lists every code",
                )  # fmt: skip
            found |= matching
    return found


def run(
    deployment: Deployment,
    chosen: Sequence[Rule],
    baseline: Container[Any] = frozenset(),
    *,
    strict: bool = False,
    parts: Collection[Deployment] = (),
) -> Result:
    """Every finding of the chosen rules, less what inline ignores and the baseline cover.

    Where a deployment has several routers, ``parts`` are their shares (`mmdeploy.lint.shares`): rules about one router
    look at each of them, the others at the whole. A rule that breaks must not keep the others from being heard: it is
    named in ``Result.broken``, or raises if ``strict``.
    """
    ignores = [*_comments(deployment), *_annotations(deployment)]
    result = Result()
    seen: set[tuple[str, Position, str]] = set()
    for item in chosen:
        looked_at = parts if parts and item.code[3] in GROUPS_OF_ROUTERS else (deployment,)
        for found, finding in chain.from_iterable(_findings(part, item, result, strict) for part in looked_at):
            identity = (finding.code, finding.position, finding.message)
            if identity in seen:
                continue
            seen.add(identity)
            covering = [ignore for ignore in ignores if ignore.covers(finding, found)]
            for ignore in covering:
                ignore.used = True
            if covering:
                result.ignored += 1
            elif finding.key in baseline:
                result.known += 1
            else:
                result.findings.append(finding)
    if any(item.code == UNUSED_IGNORE for item in chosen):
        for finding in _unused(ignores, {item.code for item in chosen}):
            if finding.key in baseline:
                result.known += 1
            else:
                result.findings.append(finding)
    result.findings.sort(key=lambda item: (item.position.file, item.position.line, item.position.column, item.code))
    return result


def _findings(deployment: Deployment, item: Rule, result: Result, strict: bool) -> Iterator[tuple[Found, Finding]]:
    try:
        for found in item.check(deployment):
            yield found, as_finding(found, item)
    except Exception as problem:
        if strict:
            raise
        result.broken.append(f"{item.code} ({type(problem).__name__}: {problem})")


def _texts(deployment: Deployment) -> dict[str, tuple[str, int]]:
    """Texts by file that may ask for something, each once, with the lines before it."""
    documents = [*deployment.documents, *deployment.kustomizations, *deployment.sources]
    return {
        f"{document.file}\0{document.line_offset}": (document.whole_text, document.line_offset)
        for document in documents
        if document.written is None and document.mentions(_MARK)
    }


def _comments(deployment: Deployment) -> list[Ignore]:
    found = []
    for key, (text, offset) in _texts(deployment).items():
        for number, line in enumerate(text.splitlines(), start=1):
            match = _COMMENT.search(line)
            codes = frozenset(_CODE.findall(match["rest"])) if match else frozenset()
            if match:
                at = Position(key.split("\0")[0], offset + number, match.start() + 1)
                found.append(Ignore(codes, at, None, line=line))
    return found


def _annotations(deployment: Deployment) -> list[Ignore]:
    found = []
    for item in deployment.objects:
        text = dig(item.document.value, ("metadata", "annotations", ANNOTATION))
        codes = frozenset(_CODE.findall(str(text))) if text else frozenset()
        if codes:
            at = item.position("metadata", "annotations", ANNOTATION)
            found.append(Ignore(codes, at, item.document, line=item.document.line_of(at)))
    return found


def _unused(ignores: Iterable[Ignore], chosen: set[str]) -> list[Finding]:
    found = []
    for ignore in ignores:
        if ignore.used or (ignore.codes and not ignore.codes & chosen):
            continue
        what = f"{', '.join(sorted(ignore.codes & chosen))} is ignored here, but nothing is found"
        fix = "remove the ignore, or correct its code; a comment stands on the line that is found, or alone above it"
        if not ignore.codes:
            what, fix = "this ignore names no code, so it ignores nothing", "write # mmdeploy: ignore MMD305 reason"
        place = ignore.position
        found.append(
            Finding(UNUSED_IGNORE, Level.warning, place, "ignore", "", what, fix, "mmdeploy", shown(ignore.line))
        )
    return found
