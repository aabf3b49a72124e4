"""Pages of metrics: Prometheus' own reader takes them, and they lag and restart as processes do."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from mmdeploy.rehearse.messages import Message
from mmdeploy.rehearse.series import Family, Registry, families, numbers
from mmdeploy.rehearse.settings import Timings
from tests.rehearse.client import HeldClock, Start, chat, image, samples, text, total

COUNT = {"done": Family("done_total", "counter", ("who",), {}, True, ())}


def test_prometheus_reads_the_same_from_every_page(start: Start) -> None:
    for bundle in ("e-p-d", "sglang"):
        deployment = start(bundle)
        chat(deployment.entry, deployment.settings.model, image(), text('a "quoted" \\ name'))
        pages = [str(pod.engine(Message("GET", "/metrics")).content) for pod in deployment.pods.values()]
        pages.append(str(deployment.scrape_picker(Message("GET", "/metrics")).content))
        for page in pages:
            read = [
                (sample.name, dict(sample.labels), sample.value)
                for family in text_string_to_metric_families(page)
                for sample in family.samples
            ]
            assert read == samples(page)


def test_labels_are_escaped() -> None:
    registry = Registry(COUNT, {}, False, HeldClock().now)
    registry.add("done", who='a"b\\c\nd')
    (family,) = text_string_to_metric_families(registry.text())
    assert family.samples[0].labels == {"who": 'a"b\\c\nd'}


def test_a_histogram_counts_up_to_each_bound() -> None:
    registry = Registry({"size": Family("size", "histogram", (), {}, False, (1.0, 10.0))}, {}, False, HeldClock().now)
    for value in (0.5, 1.0, 5, 50):
        registry.observe("size", value)
    page = registry.text()
    assert [total(page, "size_bucket", le=bound) for bound in ("1.0", "10.0", "+Inf")] == [2, 3, 4]
    assert (total(page, "size_sum"), total(page, "size_count")) == (56.5, 4)


def test_a_series_is_absent_until_its_first_event() -> None:
    registry = Registry(COUNT, {}, True, HeldClock().now)
    assert samples(registry.text()) == []
    registry.add("done", who="me")
    assert [name for name, _, _ in samples(registry.text())] == ["done_total", "done_created"]


def test_what_is_scraped_is_as_old_as_the_last_flush() -> None:
    clock = HeldClock()  # stands at a whole number of flushes
    registry = Registry(COUNT, {}, False, clock.now, lag=10)
    seen = []
    for second in (1, 8, 3, 7, 1):  # at 1, 9, 12, 19 and 20
        clock.sleep(second)
        seen.append(sum(value for _, _, value in samples(registry.text())))
        registry.add("done", who="me")
    assert seen == [0, 0, 2, 2, 4]


def test_an_engine_lags(start: Start, clock: HeldClock) -> None:
    deployment = start("aggregation", timings=Timings(lag=2))
    chat(deployment.entry, deployment.settings.model, text("hello"))

    def ended() -> float:
        pages = (str(pod.engine(Message("GET", "/metrics")).content) for pod in deployment.pods.values())
        return sum(total(page, "vllm:request_success_total") for page in pages)

    assert ended() == 0
    clock.sleep(2)
    assert ended() == 1


def test_a_restart_begins_anew_with_a_later_creation(start: Start, clock: HeldClock) -> None:
    engine = start("aggregation").pods["decode-0"].engine
    chat(engine, engine.settings.served, text("hello"))
    clock.sleep(60)
    engine.restart()
    page = str(engine(Message("GET", "/metrics")).content)
    assert total(page, "vllm:prompt_tokens_total") == 0
    assert total(page, "vllm:prompt_tokens_created") == 1_000_060.0
    assert total(page, "process_start_time_seconds") == 1_000_060.0


def test_releases_have_their_own_families(start: Start) -> None:
    """vllm-metrics.csv: prompt_tokens_by_source from 0.16; sglang-metrics.csv: page_size from 0.5.12."""
    facts = start("aggregation").settings.facts
    assert "promptTokensBySource" not in families(facts["vllm"], numbers("0.15.1"), frozenset())
    assert "promptTokensBySource" in families(facts["vllm"], numbers("v0.30.0"), frozenset())
    assert "pageSize" not in families(facts["sglang"], numbers("0.5.10.post1"), frozenset())
    assert "pageSize" in families(facts["sglang"], numbers("v0.5.15.post1-cu130"), frozenset())


def test_versions() -> None:
    assert numbers("v0.5.15.post1-cu130") == (0, 5, 15)
    assert numbers("main") == ()
