"""A network of the tests' own: ``python -m tests.rig.netns COMMAND ARG...`` runs the command inside it.

The API server's proxy refuses loopback addresses, and pods need addresses that lead somewhere. In a new network
namespace every address of the pod and node ranges is made local, so one process that listens on 0.0.0.0:8000 answers
for every pod, and tells them apart by the address that was asked. Nothing leads out of it, so no test can reach
anything else. A user namespace around it makes this possible without root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PODS = "10.244.0.0/16"
NODES = "10.245.0.0/24"  # the fake kubelet listens there
SERVICES = "10.96.0.0/16"  # virtual addresses, for whoever plays kube-proxy

_INSIDE = "MMDEPLOY_RIG_NETWORK"
_SETUP = " && ".join(["ip link set lo up", *(f"ip route add local {each} dev lo" for each in (PODS, NODES, SERVICES))])


def inside() -> bool:
    return _INSIDE in os.environ


def unavailable() -> str | None:
    """Why this machine cannot have such a network, or nothing when it can."""
    for name, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if not shutil.which(name):
            return f"{name} is not installed (Debian's package {package})"
    tried = subprocess.run(["unshare", "-rn", "sh", "-c", _SETUP], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespace may be made here: {tried.stderr.strip()}"
    return None


def main(command: list[str]) -> None:
    """Become the command, inside the namespace; outside it where there can be none, and tests then skip."""
    why_not = unavailable()
    if why_not:
        print(f"pod addresses will not be reachable: {why_not}", file=sys.stderr)
        os.execvp(command[0], command)
    os.environ[_INSIDE] = PODS
    os.execvp("unshare", ["unshare", "-rn", "sh", "-c", f'{_SETUP} && exec "$@"', "sh", *command])


if __name__ == "__main__":
    main(sys.argv[1:])
