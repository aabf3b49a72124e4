"""Metrics pages: what is kept of them, and what is no metrics page."""

from __future__ import annotations

import pytest

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.metrics import Metrics
from mmdeploy.verify import scraping
from mmdeploy.verify.transport import Answer
from tests.verify.simulated import ROOT

METRICS = Metrics(Catalog(ROOT / "blueprints"))
VLLM = METRICS.engine("vllm", "decode")


def answer(body: str, status: int = 200) -> Answer:
    return Answer(status, {}, ((0.0, body.encode()),))


def test_only_what_the_catalog_names_is_kept() -> None:
    body = (
        "# HELP vllm:request_success_total Count of successfully processed requests.\n"
        "# TYPE vllm:request_success_total counter\n"
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="a \\"b\\""} 4.0\n'
        "# TYPE vllm:iteration_tokens_total histogram\n"
        'vllm:iteration_tokens_total_bucket{le="1.0"} 7.0\n'
        "python_gc_objects_collected_total 5\n"
    )
    page = scraping.page("decode-0", "start", 0.5, answer(body), VLLM)
    assert [(item.name, item.labels["model_name"], item.value) for item in page.samples] == [
        ("vllm:request_success_total", 'a "b"', 4.0)
    ]
    assert "vllm:iteration_tokens_total" in page.families


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        pytest.param("<html><body>hello</body></html>", "no metrics in it", id="a web page"),
        pytest.param("", "no metrics in it", id="nothing"),
        pytest.param("# TYPE envoy_upstream_rq counter\nenvoy_upstream_rq 3\n", "another program", id="envoy"),
        pytest.param("# TYPE vllm:x counter\nvllm:request_success_total many\n", "cannot be parsed", id="no number"),
    ],
)
def test_what_is_no_page_of_this_program_is_garbled(body: str, detail: str) -> None:
    page = scraping.page("decode-0", "start", 0.0, answer(body), VLLM)
    assert page.missing == "garbled"
    assert detail in page.detail


def test_no_answer_is_unreachable() -> None:
    page = scraping.page("decode-0", "start", 0.0, Answer(None, trouble="timeout", detail="timed out"), VLLM)
    assert (page.missing, page.detail) == ("unreachable", "timeout: timed out")


def test_a_page_without_remarks_is_read_too() -> None:
    page = scraping.page("decode-0", "start", 0.0, answer("vllm:num_requests_running 2\n"), VLLM)
    assert [item.value for item in page.samples] == [2.0]


def test_every_name_of_the_table_stands_in_the_facts() -> None:
    """The tables that were read out of the real programs, where they are at hand."""
    facts = ROOT.parent / "shared" / "facts"
    if not facts.is_dir():
        pytest.skip("the fact tables are not on this machine")
    known = {
        line.split(",")[column]
        for name, column in (("vllm-metrics.csv", 0), ("sglang-metrics.csv", 0), ("router-metrics.csv", 1))
        for line in (facts / name).read_text(encoding="utf-8").splitlines()
    }
    proposed = {"vllm:ec_cpu_save_bytes", "vllm:ec_cpu_load_bytes"}  # model-servers.md §2: proposed only
    engines = [METRICS.engine(*pod) for pod in (("vllm", "decode"), ("sglang", "encode"), ("sglang", "decode"))]
    for page in (METRICS.picker, *engines):
        for family in page.families.values():
            assert family.names[0] in known | proposed, family.key
