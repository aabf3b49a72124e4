"""`mmdeploy check` as a person runs it: output, exit codes, waiting, an unreachable cluster, the model hub."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.check.checking import Checker, token
from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane

CHART = Path(__file__).resolve().parents[2] / "rig" / "chart"


def check(plane: ControlPlane, checker: Checker, *words: str, user: str = users.ADMIN, **environment: str) -> Any:
    """Run it on the spec that the checker wrote last."""
    return subprocess.run(
        [sys.executable, "-m", "mmdeploy", "check", str(checker.folder / "mmdeploy.yaml"), *words],
        capture_output=True, text=True, check=False,
        env={**plane.environment(user), "HF_HUB_OFFLINE": "1", **environment},
    )  # fmt: skip


def test_text(plane: ControlPlane, checker: Checker) -> None:
    checker.intended()
    done = check(plane, checker)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("kubernetes-api\n--------------\n√ the API server https://")
    assert f"context rig, namespace {checker.namespace}, as admin" in done.stdout
    assert "√ there is room for all pods: needs 8 pods × 2 nvidia.com/gpu; 3 nodes have" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Status check results are √ (")
    assert done.stderr == ""


def test_a_directory_and_the_router_s_chart(plane: ControlPlane, checker: Checker, tmp_path: Path) -> None:
    checker.intended()
    bundle = tmp_path / "bundle"
    words = ["render", "-f", str(checker.folder / "mmdeploy.yaml"), "-d", str(bundle)]
    subprocess.run([sys.executable, "-m", "mmdeploy", *words], check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", "check", "--router-chart", str(CHART)], cwd=bundle, text=True,
        capture_output=True, check=False, env={**plane.environment(), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    # The chart makes 10 objects of these values (router.md §4.3, without route and monitoring): all are tried.
    assert "√ the server accepts every object of the router: 10 tried, strictly" in done.stdout


def test_json_and_exit_code(plane: ControlPlane, checker: Checker, admin: Api) -> None:
    checker.intended()
    admin.delete(f"/api/v1/namespaces/{checker.namespace}/secrets/llm-d-hf-token")
    done = check(plane, checker, "-o", "json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["schemaVersion"], document["kind"], document["success"]) == (1, "Checks", False)
    checks = [item for category in document["categories"] for item in category["checks"]]
    (bad,) = [item for item in checks if item["result"] == "error"]
    assert bad["description"] == "Secret llm-d-hf-token has key HF_TOKEN"
    assert "--from-file=HF_TOKEN=/dev/stdin" in bad["hint"]
    assert check(plane, checker, "--pre").returncode == 0


def test_strict(plane: ControlPlane, checker: Checker) -> None:
    checker.intended(topology="e-pd")  # nobody runs LWS' webhook here: a warning
    assert check(plane, checker).returncode == 0
    assert check(plane, checker, "--strict").returncode == 1


def test_waiting(plane: ControlPlane, checker: Checker, admin: Api) -> None:
    checker.intended()
    admin.delete(f"/api/v1/namespaces/{checker.namespace}/secrets/llm-d-hf-token")
    over = check(plane, checker, "--wait", "1s")
    assert over.returncode == 124
    assert "× Secret llm-d-hf-token" in over.stdout
    words = ["check", str(checker.folder / "mmdeploy.yaml"), "--wait", "2m", "-o", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "mmdeploy", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**plane.environment(), "HF_HUB_OFFLINE": "1"},
    ) as running:  # fmt: skip
        assert running.stderr
        assert running.stderr.readline() == "waiting for: Secret llm-d-hf-token has key HF_TOKEN\n"
        token(admin, checker.namespace)
        stdout, _ = running.communicate(timeout=120)
    assert running.returncode == 0
    assert json.loads(stdout)["success"] is True


def test_no_cluster(plane: ControlPlane, checker: Checker, tmp_path: Path) -> None:
    checker.intended()
    content = json.loads(plane.kubeconfig().read_text())
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    broken = tmp_path / "kubeconfig"
    broken.write_text(json.dumps(content))
    done = check(plane, checker, "--kubeconfig", str(broken))
    assert done.returncode == 5
    assert "× the API server answers\n    the API server https://127.0.0.1:9 cannot be reached" in done.stdout
    content["users"][0]["user"] = {"token": "of-nobody"}
    content["clusters"][0]["cluster"]["server"] = plane.server
    broken.write_text(json.dumps(content))
    done = check(plane, checker, "--kubeconfig", str(broken), "-o", "json")
    assert done.returncode == 5
    assert "credentials are not accepted" in done.stdout
    assert json.loads(done.stdout)["success"] is False
    wrong = check(plane, checker, "--context", "rigg")
    assert wrong.returncode == 5
    assert "contexts: rig" in wrong.stdout


def test_no_helm(plane: ControlPlane, checker: Checker) -> None:
    checker.intended()
    done = check(plane, checker, PATH="/nowhere")
    assert done.returncode == 1
    assert "× helm is 3.12 or newer" in done.stdout
    assert "‼ kubectl is 1.28 or newer" in done.stdout


def test_each_request_on_stderr(plane: ControlPlane, checker: Checker) -> None:
    checker.intended()
    done = check(plane, checker, "-v")
    lists = [line for line in done.stderr.splitlines() if line.startswith("GET /api/v1/nodes?")]
    assert len(lists) == 1  # nodes are listed once, whatever asks for them
    assert "hf_of-nobody" not in done.stdout + done.stderr


# --------------------------------------------------------------------------------------------------------------- hub


class Hub(http.server.BaseHTTPRequestHandler):
    """A model hub with one open and one gated model, whose licence one account has accepted."""

    asked: list[tuple[str, str | None]] = []

    def do_HEAD(self) -> None:  # noqa: N802 - the name is the standard library's
        said = self.headers.get("Authorization")
        self.asked.append((self.path, said))
        gated = "gemma" in self.path
        self.send_response(200 if not gated or said == "Bearer hf_accepted" else 403 if said else 401)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


GEMMA = {"accelerator": "tpu/v7", "provider": "gke", "model": "google/gemma-4-31B-it"}


def test_a_gated_model(plane: ControlPlane, checker: Checker, hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # M223: a valid token whose account has not accepted the licence.
    checker.intended(**GEMMA)
    online = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub}
    bare = check(plane, checker, **online)
    assert bare.returncode == 0
    assert "‼ the files of google/gemma-4-31B-it may be fetched" in bare.stdout
    refused = check(plane, checker, "--hf-token-from", "env:MINE", MINE="hf_stranger", **online)
    assert refused.returncode == 1
    assert "has not accepted the model's licence" in refused.stdout
    assert "hf_stranger" not in refused.stdout + refused.stderr
    fine = check(plane, checker, "--hf-token-from", "env:MINE", MINE="hf_accepted", **online)
    assert "√ the files of google/gemma-4-31B-it may be fetched" in fine.stdout


def test_an_open_model_takes_no_token(plane: ControlPlane, checker: Checker, hub: str) -> None:
    checker.intended()
    online = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub}
    done = check(plane, checker, "--hf-token-from", "env:MINE", MINE="hf_stranger", **online)
    assert "√ the files of Qwen/Qwen3-VL-32B-Instruct may be fetched" in done.stdout
    assert Hub.asked == [("/Qwen/Qwen3-VL-32B-Instruct/resolve/main/config.json", None)]
