"""What is verified is found on the cluster: by what apply left there, and where nothing was left by what is there."""

from __future__ import annotations

from tests.e2e.verify.verifying import Deployed
from tests.rig import deploying


def test_by_the_inventory_of_apply(epd: Deployed) -> None:
    with epd.simulated():
        ran = epd.verify(bundle=False)
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
    assert "2 in the bundle" in ran.said("roles")  # how many should be there is in the inventory alone


def test_by_pool_labels_and_images_where_mmdeploy_did_not_install_it(epd: Deployed) -> None:
    where = f"/api/v1/namespaces/{epd.namespace}/configmaps/mmdeploy-{deploying.NAME}"
    kept = epd.api.get(where)
    epd.api.delete(where)
    try:
        with epd.simulated():
            ran = epd.verify(bundle=False)
    finally:
        for field in ("uid", "resourceVersion", "managedFields", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        epd.api.apply(kept)
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
    assert ran.document["deployment"]["model"] == "Qwen/Qwen3-VL-32B-Instruct"
    assert "in the bundle" not in ran.said("roles")


def test_the_same_requests_for_a_shell(epd: Deployed) -> None:
    with epd.simulated():
        ran = deploying.mmdeploy(epd.plane, "verify", epd.bundle, "-n", epd.namespace, "--print-commands")
        lines = [line.strip() for line in ran.out.splitlines()]
        asked = next(line for line in lines if line.endswith("/proxy/v1/models"))
        answer = epd.plane.run("sh", "-c", asked)
        sent = next(line for line in lines if "services/multimodal-serving-epp:80/proxy/v1/chat/completions" in line)
        said = epd.plane.run("sh", "-c", sent)
    assert "Qwen/Qwen3-VL-32B-Instruct" in answer
    assert '"choices"' in said


def test_a_name_that_is_not_there(epd: Deployed) -> None:
    ran = epd.verify("--name", "multimodal-servin", bundle=False)
    assert ran.code == 2
    assert "multimodal-serving" in ran.err


def test_a_namespace_without_a_deployment(epd: Deployed) -> None:
    ran = deploying.mmdeploy(epd.plane, "verify", "-n", "default")
    assert ran.code == 5
    assert "no endpoint picker and no InferencePool" in ran.err
