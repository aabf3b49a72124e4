"""What is said of kubeconfigs and servers that are none: one sentence, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.cluster.access import Access
from mmdeploy.cluster.failures import from_response
from mmdeploy.errors import ClusterError, NotFoundError, RejectedError


def config(user: dict[str, Any], cluster: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "me", "user": user}], **more,
    }  # fmt: skip


BROKEN = {
    "an auth-provider without its part": (
        config({"auth-provider": {"name": "gcp"}}, {}), "an entry of it has another form",
    ),
    "a SOCKS proxy": (config({"token": "t"}, {"proxy-url": "socks5://127.0.0.1:2"}), "PySocks is missing here"),
    "a current context that is a list": (
        config({"token": "t"}, {}, **{"current-context": ["here"]}), "an entry of it has another form",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kubeconfig(name: str, tmp_path: Path) -> None:
    content, said = BROKEN[name]
    path = tmp_path / "config"
    path.write_text(json.dumps(content))
    with pytest.raises(ClusterError) as caught:
        Access(path).connection()
    assert said in caught.value.found
    assert "<" not in caught.value.found
    assert caught.value.next_step


@pytest.mark.parametrize(("place", "said"), [(".", "is no file"), ("absent", "there is no kubeconfig")])
def test_no_kubeconfig(place: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=said):
        Access(tmp_path / place).connection()


@pytest.mark.parametrize(
    ("status", "data", "kind"),
    [
        (400, b"Client sent an HTTP request to an HTTPS server.\n", ClusterError),
        (404, b"404 page not found\n", NotFoundError),
        (404, b'{"kind":"Status","message":"pods \\"a\\" not found"}', NotFoundError),
        (500, b'{"kind":"Status","message":"failed to create typed patch object (apps/v1): .spec.replicas: expected '
              b'numeric"}', RejectedError),
    ],
)  # fmt: skip
def test_an_answer_that_says_no(status: int, data: bytes, kind: type[ClusterError]) -> None:
    """The first as Go's own server words it (net/http), the others as the API server does: the second for a group that
    nobody serves."""
    problem = from_response(status, data, "GET", "/version")
    assert type(problem) is kind
    assert problem.next_step or kind is NotFoundError
