"""The API server, and the programs on this side."""

from __future__ import annotations

from collections.abc import Iterator

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.facts import Facts, older
from mmdeploy.preflight.pods import natively_sided
from mmdeploy.preflight.reading import Reading
from mmdeploy.preflight.subject import Subject

CATEGORY = "kubernetes-api"
PROGRAMS = "programs"


def checks(subject: Subject) -> Iterator[Check]:
    """Which cluster it is, and whether it is new enough for the bundle."""
    where, session = subject.session.where, subject.session
    place = f"context {where.context}, namespace {subject.namespace}" + (f", as {where.user}" if where.user else "")
    yield Check(CATEGORY, f"the API server {where.server} answers", "ok", place)
    sided = natively_sided(demand.spec for demand in subject.demands)
    yield version(session.version, sided, subject.facts)


def version(found: str, sided: bool, facts: Facts) -> Check:
    """Whether a server's version is new enough; ``sided`` where pods have native sidecars."""
    rules = facts["kubernetes"]
    oldest = rules["nativeSidecar"] if sided else rules["oldest"]
    name = f"Kubernetes is {oldest} or newer"
    if not older(found, oldest):
        return Check(CATEGORY, name, "ok", found)
    detail = f"it is {found}"
    if sided:
        detail += ": it drops restartPolicy of init containers, so pods with a routing sidecar hang in Init for ever"
    return Check(CATEGORY, name, "error", detail, "upgrade the cluster")


def programs(subject: Subject) -> Iterator[Check]:
    """helm and kubectl, and a release that an earlier helm left locked."""
    oldest = subject.facts["programs"]
    helm, kubectl = subject.seen.helm, subject.seen.kubectl
    name = f"helm is {oldest['helm']} or newer"
    if helm.value is None:
        yield Check(PROGRAMS, name, "error", helm.why, f"install helm {oldest['helm']} or newer")
    else:
        yield Check(PROGRAMS, name, "ok", helm.value)
    if subject.options.kubectl:
        yield _kubectl(kubectl, oldest["kubectl"])
    release = subject.seen.release.value
    if release is not None and release.locked:
        yield Check(
            PROGRAMS, f"helm release {release.name} is not locked", "warning",
            f"it is {release.status}: a helm was interrupted, or runs right now",
            "mmdeploy apply frees it once nobody else works on it",
        )  # fmt: skip


def _kubectl(found: Reading[str], oldest: str) -> Check:
    name = f"kubectl is {oldest} or newer"
    if found.value is None:
        return Check(PROGRAMS, name, "warning", found.why, "mmdeploy does not need it; the bundle's README does")
    if older(found.value, oldest):
        return Check(PROGRAMS, name, "warning", f"it is {found.value}", "install a newer kubectl")
    return Check(PROGRAMS, name, "ok", found.value)


__all__ = ["checks", "programs", "version"]
