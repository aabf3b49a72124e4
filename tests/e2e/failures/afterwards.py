"""What must hold whatever happened to an apply: all is listed, nothing leaked, nothing stays locked."""

from __future__ import annotations

import base64
import difflib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.rig.api import Object
from tests.rig.contents import DERIVED, Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, Ran, mmdeploy
from tests.rig.standing import applied, release, standing

TOKEN = "hf_0123456789ofTheFailures"
ENVIRON = {"T": TOKEN}
SECRET = "llm-d-hf-token"
KEPT = f"mmdeploy-{NAME}"
INVENTORY = f"ConfigMap/{KEPT}"
LEASE = f"Lease.coordination.k8s.io/{KEPT}"

_SETTLED_SECONDS = 30
_NOT_OURS = {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
_HELM = "meta.helm.sh/release-name"


def words(bundle: Path, *more: str, checked: bool = False, waits: bool = False) -> list[str]:
    """A command line of apply: events, the rig's chart, the token from the environment."""
    found = ["apply", str(bundle), "-y", "-o", "jsonl", "--router-chart", str(CHART), "--hf-token-from", "env:T"]
    found += [] if checked else ["--skip", "preflight"]
    return [*found, *([] if waits else ["--no-wait"]), *more]


def apply(plane: ControlPlane, bundle: Path, *more: str) -> Ran:
    """Apply from begin to end, not waiting for pods; nothing it prints has the token in it."""
    ran = mmdeploy(plane, *words(bundle, *more), environ=ENVIRON)
    assert_silent(ran.out, ran.err)
    return ran


# ------------------------------------------------------------------------------------------------------------ nothing


def assert_silent(*texts: str) -> None:
    """The token is in none of the texts, nor is it there in base64, once or twice."""
    once = base64.b64encode(TOKEN.encode())
    for form in (TOKEN, once.decode().rstrip("="), base64.b64encode(once).decode().rstrip("=")):
        for text in texts:
            assert form not in text, f"the token leaked: {text[max(0, text.index(form) - 200) : text.index(form)]}"


def assert_nothing_leaked(there: Mapping[str, Object]) -> None:
    """The token is in its Secret, and nowhere else: no event, no ConfigMap, no release."""
    assert_silent(*_texts(there))


def _texts(there: Mapping[str, Object]) -> Iterator[str]:
    for name, item in there.items():
        if name == f"Secret/{SECRET}":
            item = {key: value for key, value in item.items() if key != "data"}
        yield json.dumps(item)
        if item.get("type") == "helm.sh/release.v1":
            yield json.dumps(release(item))
        if "inventory.json" in (item.get("data") or {}):
            yield json.dumps(applied(item))


def assert_no_orphan(there: Mapping[str, Object]) -> None:
    """Whatever is there is listed in the inventory, part of the release that is listed, or made by a controller."""
    kept = there.get(INVENTORY)
    listed, of = _listed(kept)
    expected = {*_NOT_OURS, INVENTORY, LEASE, *listed}
    orphans = [
        name
        for name, item in there.items()
        if name not in expected
        and name.partition("/")[0].partition(".")[0] not in DERIVED
        and not item["metadata"].get("ownerReferences")
        and (item["metadata"].get("annotations") or {}).get(_HELM, "nobody's") != of
        and not (item.get("type") == "helm.sh/release.v1" and item["metadata"]["labels"]["name"] == of)
    ]
    assert not orphans, f"outside the inventory, which {'lists ' + str(listed) if kept else 'is not there'}: {orphans}"


def _listed(kept: Object | None) -> tuple[list[str], str]:
    """Objects and the release of an inventory."""
    if kept is None:
        return [], ""
    read = json.loads(kept["data"]["inventory.json"])
    names = []
    for entry in read["entries"]:
        group = entry["api_version"].rpartition("/")[0]
        names.append(f"{entry['kind']}{'.' * bool(group)}{group}/{entry['name']}")
    return names, (read["release"] or {}).get("name", "")


def assert_unlocked(there: Mapping[str, Object]) -> None:
    """No lease is left, and no helm release waits for a helm that is gone."""
    assert LEASE not in there, f"{LEASE} is left"
    states = {name: release(item)["info"]["status"] for name, item in there.items() if "sh.helm.release" in name}
    assert not [name for name, state in states.items() if state.startswith("pending")], states


def assert_in_order(contents: Contents, namespace: str, *, at_rest: bool = True) -> None:
    """Nothing is outside the inventory and nothing leaked; ``at_rest`` also says that nothing is locked."""
    there = contents.of(namespace, derived=True)
    assert_no_orphan(there)
    assert_nothing_leaked(there)
    if at_rest:
        assert_unlocked(there)


def assert_stands(contents: Contents, namespace: str, wanted: dict[str, Any]) -> None:
    """The namespace comes to stand as an undisturbed apply leaves it, once the controllers have done their part."""
    end = time.monotonic() + _SETTLED_SECONDS
    while (found := standing(contents, namespace)) != wanted:
        if time.monotonic() > end:
            raise AssertionError("not as after an undisturbed apply:\n" + _difference(wanted, found))
        time.sleep(0.3)


def _difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    differing = [name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name)]
    lines = []
    for name in differing:
        texts = [json.dumps(some.get(name), indent=1, sort_keys=True).splitlines() for some in (wanted, found)]
        lines += list(difflib.unified_diff(*texts, f"undisturbed {name}", f"found {name}", lineterm="", n=2))[:60]
    return "\n".join(lines)


def assert_resumed(
    plane: ControlPlane, contents: Contents, bundle: Path, namespace: str, wanted: dict[str, Any], *more: str
) -> Ran:
    """Nothing is outside the inventory; the same command again comes to the same as if nothing had happened."""
    assert_in_order(contents, namespace, at_rest=False)
    ran = apply(plane, bundle, *more)
    assert ran.code == 0, f"apply does not go on: {ran.err}\n{ran.out[-2000:]}"
    assert_stands(contents, namespace, wanted)
    assert_in_order(contents, namespace)
    return ran
