"""What a kubelet serves, through the API server: logs of the fake pods (``kubectl logs`` shows what a test wrote),
their ports, and commands, which run on this machine.

kwok answers for every node's kubelet at one address, inside the network of netns.py only; it reads which file a pod's
log is from objects of a kind of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.rig.api import Api, wait

ADDRESS = "10.245.0.1"  # of every node
_ROOT = "/apis/kwok.x-k8s.io/v1alpha1"


KINDS = {"Logs": "logs", "PortForward": "portforwards"}  # ClusterExec is in stages.yaml


def _definition(kind: str, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.kwok.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": "kwok.x-k8s.io",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def install(api: Api) -> None:
    """Before kwok starts: it looks for its kinds once."""
    for kind, plural in KINDS.items():
        api.apply(_definition(kind, plural))
    for plural in KINDS.values():
        wait(f"{plural} are served", lambda plural=plural: api.find(f"{_ROOT}/{plural}"))


def arguments(port: int, certificate: Path, key: Path) -> list[str]:
    """For kwok to answer as the kubelets."""
    return [
        f"--node-port={port}",
        f"--server-address={ADDRESS}:{port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--enable-crds={','.join(KINDS)}",
    ]


def write_log(api: Api, folder: Path, namespace: str, pod: str, lines: list[str], previous: list[str]) -> None:
    """Have a pod's containers say this, and have said that before they were restarted."""
    spec = {"follow": False}
    for key, said in (("logsFile", lines), ("previousLogsFile", previous)):
        file = folder / f"{namespace}-{pod}-{key}"
        file.write_text("".join(f"2026-01-01T00:00:00.0Z stdout F {line}\n" for line in said), encoding="utf-8")
        spec[key] = str(file)  # type: ignore[assignment]
    item = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Logs",
        "metadata": {"name": pod, "namespace": namespace},
        "spec": {"logs": [spec]},
    }
    api.request("POST", f"{_ROOT}/namespaces/{namespace}/logs", item)


def forward_ports(api: Api, namespace: str, pod: str, address: str, ports: list[int]) -> None:
    """Have ``kubectl port-forward`` to a pod lead to these ports of its address, as it does where pods are real."""
    forwards = [{"ports": [port], "target": {"address": address, "port": port}} for port in ports]
    api.apply(
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "PortForward",
            "metadata": {"name": pod, "namespace": namespace},
            "spec": {"forwards": forwards},
        }
    )
