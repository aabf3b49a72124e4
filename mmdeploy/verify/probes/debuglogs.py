"""For the time of a run, the log level at which vLLM tells of transfers, on a cluster.

The level is a variable of the engine's container, so that changing it makes new pods, of Deployments, StatefulSets and
DisaggregatedSets alike. What it was is written into an annotation of the workload before anything else: whoever runs it
next puts it back where a run was killed, and an interrupt puts it back at once.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ConflictError, MmdeployError, TimedOutError
from mmdeploy.lint.pods import pods_of
from mmdeploy.lint.source import Document

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.lint.pods import Pod

Object = Mapping[str, Any]

ANNOTATION = "mmdeploy.llm-d.ai/debug-logs-before"
"""On a workload whose level is raised: role → what the variable was before, null for not set."""

ATTEMPTS = 5
"""Tries of one write, where somebody else changes the object at the same time."""
POLL_SECONDS = 2.0


@dataclass
class DebugLogs:
    """Raises the level on the workloads of one deployment, and takes it back."""

    session: Session
    namespace: str
    workloads: Sequence[Object]
    """With apiVersion, kind, and metadata.name: Deployments, StatefulSets, DisaggregatedSets."""
    roles: Sequence[str]
    """Whose engines are to tell: encode, and the role that takes embeddings."""
    variable: str
    value: str
    patience: float = 1800.0
    """Seconds that new pods may take: they load the model anew."""
    tell: Callable[[str], None] = lambda text: None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    changed: list[Object] = field(default_factory=list)

    @classmethod
    def of(cls, session: Session, catalog: Catalog, namespace: str, workloads: Sequence[Object],
           roles: Sequence[str], **more: Any) -> DebugLogs:  # fmt: skip
        """With the catalog's variable and value."""
        said = catalog.table("metrics")["embeddings"]["variable"]
        return cls(session, namespace, workloads, roles, said["name"], said["value"], **more)

    def warning(self) -> str:
        """What a person must agree to, in a sentence."""
        names = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in self.workloads)
        return f"sets {self.variable}={self.value} on {names}: their pods restart now, and again when it is put back"

    @contextmanager
    def raised(self) -> Iterator[None]:
        """The level is up inside, and what it was before outside, however the inside ends.

        Raises `ClusterError` and its kin where the person may not change a workload, and `TimedOutError` where the new
        pods do not become ready; the level is put back first.
        """
        try:
            for item in self.workloads:
                self._raise(item)
            self.wait()
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Put back whatever an annotation says was changed, of this run or of one before. One workload that fails does
        not keep the others from it; the first such error is raised at the end."""
        problems: list[MmdeployError] = []
        for item in self.workloads:
            try:
                if self._write(item, self._lowered):
                    self.tell(f"put {self.variable} of {item['kind']} {item['metadata']['name']} back")
            except MmdeployError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    def wait(self) -> None:
        """Until as many pods of each role as are asked for are ready at that level. Raises `TimedOutError`."""
        deadline = self.now() + self.patience
        wanted = self._wanted()
        while True:
            lacking = self._lacking(wanted)
            if not lacking:
                return
            if self.now() >= deadline:
                raise TimedOutError(
                    f"the pods did not become ready at that level within {self.patience:g} s: {', '.join(lacking)}",
                    next_step="kubectl get pods; the level has been put back",
                )
            self.tell(f"waiting for pods at the level {self.value}: {', '.join(lacking)}")
            self.sleep(POLL_SECONDS)

    # ------------------------------------------------------------------------------------------------------- changing

    def _raise(self, item: Object) -> None:
        if self._write(item, self._risen):
            self.changed.append(item)
            self.tell(f"set {self.variable}={self.value} on {item['kind']} {item['metadata']['name']}")

    def _write(self, item: Object, change: Callable[[dict[str, Any]], bool]) -> bool:
        """Change the live object, again where somebody was faster. False where there was nothing to change."""
        for attempt in range(ATTEMPTS):
            live = self._live(item)
            if live is None:
                return False
            new = copy.deepcopy(dict(live))
            if not change(new):
                return False
            try:
                self.session.replace(new)
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return True
        return False

    def _risen(self, live: dict[str, Any]) -> bool:
        before: dict[str, Any] = {}
        for role, variables in self._variables(live):
            entry = next((item for item in variables if item.get("name") == self.variable), None)
            if entry is not None and entry.get("value") == self.value:
                continue
            before[role] = dict(entry) if entry is not None else None
            if entry is None:
                variables.append({"name": self.variable, "value": self.value})
            else:
                entry.pop("valueFrom", None)
                entry["value"] = self.value
        if not before:
            return False
        notes = live["metadata"].setdefault("annotations", {})
        known = json.loads(notes.get(ANNOTATION, "{}"))
        notes[ANNOTATION] = json.dumps({**before, **known}, sort_keys=True)
        return True

    def _lowered(self, live: dict[str, Any]) -> bool:
        notes = live["metadata"].get("annotations") or {}
        if ANNOTATION not in notes:
            return False
        before = json.loads(notes.pop(ANNOTATION))
        for role, variables in self._variables(live):
            if role not in before:
                continue
            at = next((n for n, item in enumerate(variables) if item.get("name") == self.variable), None)
            if at is not None and before[role] is None:
                del variables[at]
            elif at is not None:
                variables[at] = before[role]
        return True

    def _engines(self, live: Object) -> Iterator[Pod]:
        """Templates of pods whose engine is to tell. A DisaggregatedSet restarts all of its roles when one changes:
        there all of them are, so that what to wait for can be told."""
        every = live.get("kind") == "DisaggregatedSet"
        for pod in _pods(live):
            if pod.engine is not None and (every or _role(pod) in self.roles):
                yield pod

    def _variables(self, live: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """The role and the variables of each engine's container."""
        for pod in self._engines(live):
            found: Any = live
            for step in pod.engine.container.path if pod.engine else ():
                found = found[step]
            yield _role(pod), found.setdefault("env", [])

    # -------------------------------------------------------------------------------------------------------- waiting

    def _wanted(self) -> list[Pod]:
        """Templates of the pods that are waited for."""
        found = []
        for item in self.workloads:
            live = self._live(item)
            found += list(self._engines(live)) if live is not None else []
        return found

    def _live(self, item: Object) -> Any | None:
        return self.session.live({**item, "metadata": {"namespace": self.namespace, **item["metadata"]}})

    def _lacking(self, wanted: Sequence[Pod]) -> list[str]:
        """What is still missing: ``encode 1 of 2``; pods of the old level count too, until they are gone."""
        live = [pod for item in self.session.items(f"/api/v1/namespaces/{self.namespace}/pods") for pod in _pods(item)]
        missing = []
        for template in wanted:
            ours = [pod for pod in live if template.labels.items() <= pod.labels.items() and not _ending(pod)]
            raised = [pod for pod in ours if self._tells(pod)]
            ready, count = sum(_ready(pod) for pod in raised), 1 if template.replicas is None else template.replicas
            old = len(ours) - len(raised)
            if ready < count or old:
                missing.append(f"{_role(template)} {ready} of {count}" + (f", {old} old" if old else ""))
        return missing

    def _tells(self, pod: Pod) -> bool:
        found = pod.engine.container.variable(self.variable) if pod.engine is not None else None
        return found is not None and found.get("value") == self.value


def owners(session: Session, namespace: str, pods: Sequence[str]) -> list[Object]:
    """What makes these pods in the end: the Deployments, StatefulSets and DisaggregatedSets at the top of what controls
    them. Raises `ClusterError` and its kin for what may not be read."""
    known: dict[tuple[str, str], Object] = {}

    def top(item: Object) -> Object:
        references = item["metadata"].get("ownerReferences") or ()
        above = next((each for each in references if each.get("controller")), None)
        if above is None:
            return item
        key = str(above["kind"]), str(above["name"])
        if key not in known:
            head = {"apiVersion": above["apiVersion"], "kind": above["kind"]}
            live = session.live({**head, "metadata": {"name": above["name"], "namespace": namespace}})
            known[key] = top({**live, **head}) if live is not None else item
        return known[key]

    found: dict[tuple[str, str], Object] = {}
    for name in pods:
        item = top({"kind": "Pod", **session.get(f"/api/v1/namespaces/{namespace}/pods/{name}")})
        if item["kind"] != "Pod":
            found[item["kind"], item["metadata"]["name"]] = item
    return list(found.values())


def _pods(item: Object) -> Iterator[Pod]:
    """An object's pod templates, or the pod that it is, as lint reads them."""
    return pods_of(Document(file=str(item["metadata"]["name"]), index=0, value=item, composed=None, text=""))


def _role(pod: Pod) -> str:
    return pod.role or pod.set_role or "decode"


def _ending(pod: Pod) -> bool:
    return "deletionTimestamp" in pod.document.value["metadata"]


def _ready(pod: Pod) -> bool:
    conditions = (pod.document.value.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
