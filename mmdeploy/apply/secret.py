"""The Hugging Face token: where it comes from, and the Secret it goes to. It is never printed and never kept here."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mmdeploy.apply.inventory import DEPLOYMENT, MANAGED_BY, MANAGER
from mmdeploy.errors import ConflictError, ForbiddenError, MmdeployError, NotFoundError, UsageError
from mmdeploy.secrecy import MASK, without_tokens

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

OPTION = "--hf-token-from"
_FORMS = "env:HF_TOKEN, file:PATH or existing"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LONGEST = 4096
_READ = 64 << 10
"""Bytes; a device has no end."""
_BARE = re.compile(r"[A-Za-z0-9_-]{20,}")
"""What was pasted where a path belongs."""


@dataclass(frozen=True)
class TokenSource:
    """Where the token comes from; the token itself is read when it is needed."""

    form: Literal["env", "file", "existing"]
    place: str = ""

    @classmethod
    def of(cls, text: str) -> TokenSource:
        """Raises `UsageError`, which does not repeat what was given: it may be the token itself."""
        form, _, place = text.partition(":")
        if text == "existing":
            return cls("existing")
        if form == "file" and place:
            return cls("file", place)
        if form == "env" and _VARIABLE.fullmatch(place):
            return cls("env", place)
        raise UsageError("says where the token is, not the token itself", origin=OPTION, next_step=f"{OPTION} {_FORMS}")

    def read(self) -> str | None:
        """The token; None for ``existing``. Raises `UsageError` where there is none."""
        if self.form == "existing":
            return None
        token = (os.environ.get(self.place, "") if self.form == "env" else self._text()).strip()
        if not token:
            next_step = f"export {self.place}=…" if self.form == "env" else "write the token into the file"
            found = "the variable is not set, or empty" if self.form == "env" else "it is empty"
            raise UsageError(f"there is no token: {found}", origin=self._where, next_step=next_step)
        if len(token) > _LONGEST or not token.isprintable() or " " in token:
            raise UsageError(
                "that is no token: it holds blanks, several lines, or too much", origin=self._where,
                next_step="put nothing but the token there, on one line; huggingface.co/settings/tokens shows yours",
            )  # fmt: skip
        return token

    def _text(self) -> str:
        """What the file says, or a pipe; at most as much as may be a token's."""
        try:
            with Path(self.place).open("rb") as file:
                data = file.read(_READ + 1)
        except (OSError, ValueError) as problem:
            why = getattr(problem, "strerror", None) or "no file can have such a name"
            raise UsageError(
                f"the token cannot be read: {why}", origin=self._where,
                next_step=f"{OPTION} file:PATH names a file that holds the token, and that you may read",
            ) from None  # fmt: skip
        if len(data) > _READ:
            raise UsageError(
                f"that is no token: the file holds more than {_READ >> 10} KiB", origin=self._where,
                next_step=f"{OPTION} file:PATH names a file that holds nothing but the token",
            )  # fmt: skip
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UsageError(
                "the token cannot be read: no text", origin=self._where,
                next_step=f"{OPTION} file:PATH names a file of plain text",
            ) from None  # fmt: skip

    @property
    def _where(self) -> str:
        """The option as it was given, without what may be the token itself."""
        bare = self.form == "file" and _BARE.fullmatch(self.place) and not Path(self.place).exists()
        return f"{OPTION} {self.form}:{MASK if bare else without_tokens(self.place)}"


@dataclass(frozen=True)
class Needed:
    """A Secret that pods read a key of."""

    name: str
    key: str
    uid: str = field(default="", compare=False)
    """Of the Secret, where it was looked at."""


def needed(intended: Intended) -> list[Needed]:
    """The Secrets that the model servers cannot start without, the spec's own first."""
    own = _spec_secret(intended)
    found = {own: True} if own else {}
    for pod in intended.templates():
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())):
            for variable in container.get("env", ()):
                reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
                if reference and not reference.get("optional"):
                    found[Needed(reference["name"], reference["key"])] = True
    return list(found)


def _spec_secret(intended: Intended) -> Needed | None:
    said = intended.spec.get("hfSecret") or {}
    return Needed(said["name"], said["key"]) if said.get("name") and said.get("key") else None


def name_of(intended: Intended) -> str:
    """Name of the spec's own Secret; empty where it has none."""
    found = _spec_secret(intended)
    return found.name if found else ""


def path(namespace: str, name: str) -> str:
    """Where a Secret is."""
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def ours(live: Mapping[str, Any], name: str) -> bool:
    """Whether mmdeploy made a Secret (or namespace) for this deployment."""
    metadata = live["metadata"]
    labels, notes = (metadata.get(part) or {} for part in ("labels", "annotations"))
    return bool(labels.get(MANAGED_BY) == MANAGER and notes.get(DEPLOYMENT) == name)


def own(session: Session, intended: Intended, *, given: bool = True) -> bool:
    """Whether the spec's Secret is this deployment's, or will be: nobody's yet, and a token is ``given`` for it.

    By the mark on it, so that it is known again where an inventory was lost. Raises `ForbiddenError` where it may not
    be read and a token is given; without one nothing is claimed.
    """
    wanted = _spec_secret(intended)
    if wanted is None:
        return False
    try:
        live = session.find(path(intended.namespace, wanted.name))
    except ForbiddenError:
        if given:
            raise
        return False
    return given if live is None else ours(live, intended.name)


@dataclass(frozen=True)
class Written:
    """What was done about the Secret."""

    name: str
    verb: Literal["created", "updated", "unchanged", "adopted"]
    uid: str
    ours: bool
    """Whether it goes when the deployment goes."""


def write(session: Session, intended: Intended, token: str, *, adopt: bool, dry_run: bool = False) -> Written:
    """Put the token into the spec's Secret.

    Raises `ConflictError` for a Secret of somebody else that holds another token, unless ``adopt``.
    """
    wanted = _spec_secret(intended)
    if wanted is None:
        raise UsageError("the spec names no hfSecret to put the token in", origin=OPTION)
    encoded = base64.b64encode(token.encode()).decode()
    live = session.find(path(intended.namespace, wanted.name))
    mine = live is None or ours(live, intended.name)
    if live is not None:
        if (live.get("data") or {}).get(wanted.key) == encoded:
            return Written(wanted.name, "unchanged", live["metadata"]["uid"], mine)
        if not mine and not adopt:
            raise ConflictError(
                f"somebody else's Secret {wanted.name} is there, with another {wanted.key}",
                origin=OPTION,
                next_step=f"{OPTION} existing takes it as it is; --adopt writes the token into it",
            )
    metadata: dict[str, Any] = {"name": wanted.name, "namespace": intended.namespace}
    if mine:
        metadata |= {"labels": {MANAGED_BY: MANAGER}, "annotations": {DEPLOYMENT: intended.name}}
    item = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {wanted.key: encoded}}
    if mine:
        item["type"] = "Opaque"
    with hidden(token, encoded):
        written = session.apply(item, force=True, dry_run=dry_run)
    verb: Literal["created", "updated", "adopted"] = "created" if live is None else "updated" if mine else "adopted"
    return Written(wanted.name, verb, written["metadata"]["uid"], mine)


def require(session: Session, intended: Intended) -> list[Needed]:
    """The Secrets that have to be there, once they are. Raises `NotFoundError` for one that is missing, or its key."""
    wanted = needed(intended)
    names = list(dict.fromkeys(each.name for each in wanted))
    found = dict(zip(names, session.all(_finding(session, intended.namespace, name) for name in names), strict=True))
    own = _spec_secret(intended)
    for each in wanted:
        live = found[each.name]
        if live is None or each.key not in (live.get("data") or {}):
            what = "is not there" if live is None else f"has no key {each.key}"
            raise NotFoundError(
                f"Secret {each.name} {what}, and the model servers read their Hugging Face token from it",
                origin=f"namespace {intended.namespace}",
                next_step=f"{OPTION} env:HF_TOKEN or file:PATH makes it" if each == own else
                f"kubectl create secret generic {each.name} --namespace {intended.namespace} "
                f"--from-file={each.key}=FILE",
            )  # fmt: skip
    return [replace(each, uid=str(found[each.name]["metadata"]["uid"])) for each in wanted]


def _finding(session: Session, namespace: str, name: str) -> Any:
    return lambda: session.find(path(namespace, name))


@contextlib.contextmanager
def hidden(*secrets: str) -> Iterator[None]:
    """Inside, errors do not repeat a secret, whatever a webhook may answer."""
    try:
        yield
    except MmdeployError as problem:
        for secret in secrets:
            problem.found = problem.found.replace(secret, "***")
        problem.args = (problem.found,)
        raise


__all__ = [
    "OPTION", "Needed", "TokenSource", "Written", "hidden", "name_of", "needed", "ours", "own", "path", "require",
    "write",
]  # fmt: skip
