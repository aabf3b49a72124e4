"""A deployment behind a Gateway: its route and pool are found, and requests go through the Service of the Gateway.

Nobody makes that Service here: a stand-in with the label that Gateway controllers give theirs leads to the simulated
router.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy.rehearse.messages import Message, Reply
from tests.e2e.verify.verifying import deploy
from tests.rig.controlplane import ControlPlane
from tests.rig.simulated import PROXY


@pytest.mark.usefixtures("pod_network", "custom_resources")
def test_requests_go_through_the_gateway(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    deployed = deploy(
        plane, namespace, tmp_path / "bundle", "--topology", "e-pd", "--mode", "gateway", "--gateway-class", "istio",
        workload="Deployment", monitoring="true", encode_replicas=1, decode_replicas=2, debug=("encode", "decode"),
    )  # fmt: skip
    api = plane.api()
    (gateway,) = api.items(f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/gateways")
    name = gateway["metadata"]["name"]
    picker = next(pod for pod in deployed.pods() if "epp" in pod["metadata"]["name"])
    selector = {key: value for key, value in picker["metadata"]["labels"].items() if "router" in key}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{name}-istio",
            "namespace": namespace,
            "labels": {"gateway.networking.k8s.io/gateway-name": name},
        },
        "spec": {"selector": selector, "ports": [{"name": "http", "port": 80, "targetPort": PROXY}]},
    }
    api.apply(service)
    with deployed.simulated() as simulated:
        open_to_all = deployed.verify()
        passed_on = simulated.deployment.entry

        def stripped(message: Message) -> Reply:
            """As with a RequestHeaderModifier on the route."""
            return passed_on(message.with_headers(x_prefiller_host_port=None, x_encoder_hosts_ports=None))

        simulated.deployment.entry = stripped  # type: ignore[method-assign]
        ran = deployed.verify(bundle=False)
    # The shipped route strips nothing, so a client's own header is obeyed: to know, no contradiction.
    assert (open_to_all.code, open_to_all.unproved) == (0, {}), open_to_all.out + open_to_all.err
    assert "x-prefiller-host-port is obeyed" in open_to_all.said("entry")
    assert (ran.code, ran.unproved) == (0, {}), ran.said("entry")
    assert "x-prefiller-host-port has no effect" in ran.said("entry")
    for each in (open_to_all, ran):
        said = each.said("entry")
        assert "through the Gateway" in said
        assert "the route has no timeout" in said  # 0s, which the bundle's values say
