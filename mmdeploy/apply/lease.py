"""One apply at a time: a Lease says who changes a deployment, and until when.

It is renewed while the work goes on. What a process that was killed left behind ends by itself; on the same machine it
is seen at once that the process is gone.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.inventory import MANAGED_BY, MANAGER, object_name
from mmdeploy.apply.readiness.objects_seen import moment
from mmdeploy.cluster.processes import gone, process
from mmdeploy.errors import ConflictError, MmdeployError, NotFoundError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

SECONDS = 30
"""A lease lasts so long without being renewed."""
RENEW_SECONDS = 8.0
"""Three renewals may fail before somebody else may come."""
RELEASE_SECONDS = 3.0
"""No longer than this to give it back; it ends by itself as well."""

_PROCESS = "mmdeploy/process"
_TRIES = 5
_BUSY_SECONDS = 0.2
"""Between two tries to give it back to a server that is busy."""
_CLOCKS_SECONDS = 5
"""Clocks of one cluster's machines differ by so much without being wrong."""


class Lease:
    """The lease of one deployment, held while inside ``with``."""

    def __init__(self, session: Session, namespace: str, name: str) -> None:
        self._session = session
        self._name = name
        self._path = path(namespace, name)
        self._item: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": object_name(name),
                "namespace": namespace,
                "labels": {MANAGED_BY: MANAGER},
                "annotations": {_PROCESS: process(os.getpid())},
            },
            "spec": {"holderIdentity": f"{person()}:{os.getpid()}", "leaseDurationSeconds": SECONDS},
        }
        self._lost = ""
        self._ending = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        """Take it. Raises `ConflictError` that names the holder and when the lease ends, `ForbiddenError`."""
        self._take()
        self._renewing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        if not self._lost:
            self._give_back()

    def check(self) -> None:
        """Raise `ConflictError` where somebody else holds it meanwhile: nothing more must be written."""
        if self._lost:
            raise ConflictError(
                f"the lease was lost: {self._lost}",
                origin=f"Lease {object_name(self._name)}",
                next_step="see what is there with mmdeploy diff, then apply again",
            )

    # -------------------------------------------------------------------------------------------------------- taking

    def _take(self) -> None:
        for _ in range(_TRIES):
            standing = self._session.find(self._path)
            busy = held(standing, self._session.now(), self._name) if standing else None
            if busy:
                raise busy
            with contextlib.suppress(ConflictError):  # somebody was faster: look again
                if standing is None:
                    self._write(self._session.create, {})
                else:
                    self._write(self._session.replace, {"resourceVersion": standing["metadata"]["resourceVersion"]})
                return
        raise ConflictError("others take and give back the lease all the time", origin=f"Lease {self._name}")

    def _write(self, call: Any, version: Mapping[str, str]) -> None:
        now = _stamp(self._session.now())
        spec = {"acquireTime": now, **self._item["spec"], "renewTime": now}
        metadata = {name: value for name, value in self._item["metadata"].items() if name != "resourceVersion"}
        self._item = call({**self._item, "metadata": {**metadata, **version}, "spec": spec})
        self._item["metadata"].pop("managedFields", None)

    # ------------------------------------------------------------------------------------------------------- keeping

    def _renew(self) -> None:
        while not self._ending.wait(RENEW_SECONDS):
            try:
                self._write(self._session.replace, {"resourceVersion": self._item["metadata"]["resourceVersion"]})
            except (ConflictError, NotFoundError):
                self._look()
            except MmdeployError:
                continue  # the server is away: the next turn tries again, and whoever comes first has it
            if self._lost:
                return

    def _look(self) -> None:
        """Somebody wrote the lease, or took it away: still ours?"""
        with contextlib.suppress(MmdeployError):
            standing = self._session.find(self._path)
            if standing is None:
                self._lost = "somebody deleted it"
            elif (other := (standing.get("spec") or {}).get("holderIdentity")) != self._item["spec"]["holderIdentity"]:
                self._lost = f"{other or 'nobody'} took it over"
            else:
                self._item["metadata"]["resourceVersion"] = standing["metadata"]["resourceVersion"]

    def _give_back(self) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": self._item["metadata"]["uid"]}}
        with contextlib.suppress(MmdeployError):
            for _ in range(_TRIES):
                answer = self._session.once("DELETE", self._path, text=json.dumps(options), timeout=RELEASE_SECONDS)
                if answer.status != 429 and answer.status < 500:
                    return
                time.sleep(_BUSY_SECONDS)


@dataclass(frozen=True)
class Holder:
    """Who has a lease, by what stands in it."""

    name: str
    since: datetime | None
    """When it was taken."""
    until: datetime
    """When it ends, unless it is renewed."""
    ours: bool
    """Whether mmdeploy wrote it."""
    gone: bool
    """Whether that process ran on this machine and is gone. What it started may still be at work, see
    `mmdeploy.apply.router.settled`."""

    def holds(self, now: datetime) -> bool:
        """Whether it is to be respected."""
        return self.until > now and not self.gone


def holder(standing: Mapping[str, Any]) -> Holder | None:
    """Whose a lease is; None for one that is nobody's, or was never renewed."""
    spec, metadata = standing.get("spec") or {}, standing["metadata"]
    renewed = moment(spec.get("renewTime"))
    if not spec.get("holderIdentity") or renewed is None:
        return None
    return Holder(
        str(spec["holderIdentity"]),
        moment(spec.get("acquireTime")),
        renewed + timedelta(seconds=spec.get("leaseDurationSeconds") or SECONDS),
        (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGER,
        _visible(str(spec["holderIdentity"])) and gone((metadata.get("annotations") or {}).get(_PROCESS, "")),
    )


def read(session: Session, namespace: str, name: str) -> Holder | None:
    """Who changes a deployment now; None where nobody does. Raises `ForbiddenError`."""
    standing = session.find(path(namespace, name))
    found = holder(standing) if standing else None
    return found if found and found.holds(session.now()) else None


def path(namespace: str, name: str) -> str:
    """The API path of a deployment's lease."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{object_name(name)}"


def held(standing: Mapping[str, Any], now: datetime, name: str) -> ConflictError | None:
    """Why a lease cannot be taken: it was renewed in time, by a process that may still live. None where it can.

    A lease that nobody of mmdeploy wrote, or that lasts longer than mmdeploy lets one last, is not waited for: a clock
    was wrong, or a person or another program made it. Then the error says how to clear it.
    """
    found = holder(standing)
    if found is None or not found.holds(now):
        return None
    left = found.until - now
    item = f"Lease {object_name(name)}"
    if found.ours and left <= timedelta(seconds=SECONDS + _CLOCKS_SECONDS):
        seconds = max(1, round(left.total_seconds()))
        return ConflictError(
            f"{found.name} is changing {name}; its lease ends at {found.until:%H:%M:%S} UTC, in {seconds} s, unless it "
            "is renewed",
            origin=item,
            next_step="wait until it is done; if that process is gone, try again when the lease has ended",
        )
    why = "nobody of mmdeploy wrote it" if not found.ours else f"mmdeploy's last {SECONDS} s: whose clock was wrong?"
    place = standing["metadata"].get("namespace")
    return ConflictError(
        f"{found.name} holds the lease of {name} until {found.until:%Y-%m-%d %H:%M:%S} UTC ({why})",
        origin=item,
        next_step="see that nobody is at work; then clear it: kubectl delete lease "
        f"{object_name(name)}{f' --namespace {place}' if place else ''}",
    )


def person() -> str:
    """Who this is: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def _visible(identity: str) -> bool:
    """Whether it would be seen here what that person's process left behind: one's own, and everything for root."""
    return identity.rpartition(":")[0] == person() or (hasattr(os, "geteuid") and os.geteuid() == 0)


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


__all__ = ["RENEW_SECONDS", "SECONDS", "Holder", "Lease", "held", "holder", "path", "person", "read"]
