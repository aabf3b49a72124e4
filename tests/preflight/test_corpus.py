"""Every real misconfiguration that can only be found on a cluster has a test, with its good twin."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases" / "misconfig.csv"

ROWS = {
    "M130": ("e2e/check/test_check_namespace.py", "test_a_second_router_in_a_namespace"),
    "M131": ("e2e/check/test_check_changes.py", "test_a_configuration_that_nobody_reads_again"),
    "M138": ("e2e/check/test_check_namespace.py", "test_two_deployments_that_share_a_label"),
    "M151": ("preflight/test_server.py", "test_native_sidecars_want_a_server_that_knows_them"),
    "M164": ("e2e/check/test_check_gateway.py", "test_a_listener_that_selects_other_namespaces"),
    "M169": ("e2e/check/test_check_gateway.py", "test_a_route_that_came_before_its_pool"),
    "M174": ("e2e/check/test_check_gateway.py", "test_istiod_must_know_pools"),
    "M175": ("e2e/check/test_check_gateway.py", "test_no_proxy_in_the_picker_s_pod"),
    "M191": ("e2e/check/test_check_changes.py", "test_a_rollout_without_room"),
    "M206": ("e2e/check/test_check_namespace.py", "test_a_priority_class"),
    "M207": ("e2e/check/test_check_machines.py", "test_a_taint_keeps_pods_away_and_a_toleration_lets_them_in"),
    "M208": ("e2e/check/test_check_machines.py", "test_infiniband_that_no_node_offers"),
    "M210": ("e2e/check/test_check_namespace.py", "test_openshift_wants_a_volume_wherever_the_engine_writes"),
    "M219": ("e2e/check/test_check_namespace.py", "test_a_secret_and_its_key"),
    "M223": ("e2e/check/test_check_command.py", "test_a_gated_model"),
    "M245": ("e2e/check/test_check_kinds.py", "test_a_set_needs_crds_that_helm_upgrade_does_not_bring"),
}


def test_every_row_has_a_test() -> None:
    if not CASES.exists():
        pytest.skip("../shared/cases beside this checkout is not there")
    with CASES.open(encoding="utf-8", newline="") as stream:
        rows = {row["id"] for row in csv.DictReader(stream) if row["detectable"] == "preflight"}
    assert rows == set(ROWS)


@pytest.mark.parametrize(("file", "name"), ROWS.values(), ids=ROWS)
def test_the_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
