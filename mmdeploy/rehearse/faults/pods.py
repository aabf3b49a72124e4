"""Faults of the engines themselves: caches, versions, names, answers."""

from __future__ import annotations

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.families import find as family_of
from mmdeploy.rehearse.faults.registry import fault
from mmdeploy.rehearse.series import numbers
from mmdeploy.rehearse.settings import EngineSettings, PodSettings, Settings


def _answering(settings: Settings) -> list[PodSettings]:
    """Pods that run the language model."""
    return [*settings.of("prefill"), *settings.of("decode")]


def _own(settings: Settings) -> list[PodSettings]:
    return [pod for pod in settings.pods if not pod.foreign]


@fault("prefix-cache-off", "--no-enable-prefix-caching was given to the language pods.", server="vllm")
def _no_prefixes(settings: Settings, catalog: Catalog) -> None:
    for pod in _answering(settings):
        pod.engine.prefix_caching = False


@fault("processor-cache-off", "--mm-processor-cache-gb 0 was given to the pods.", server="vllm")
def _no_processor_cache(settings: Settings, catalog: Catalog) -> None:
    for pod in _own(settings):
        pod.engine.processor_cache = False


@fault("processor-limits", "--mm-processor-kwargs with other pixel limits was given to the pods.", server="vllm")
def _limits(settings: Settings, catalog: Catalog) -> None:
    for pod in _own(settings):
        _shrink(pod.engine)


@fault(
    "processor-limits-uneven",
    "The language pods have other pixel limits than the encode pods.",
    roles=("encode",),
    server="vllm",
)
def _uneven(settings: Settings, catalog: Catalog) -> None:
    for pod in _answering(settings):
        _shrink(pod.engine)


def _shrink(engine: EngineSettings) -> None:
    """A quarter of a megapixel at most, or the least budget, as the family spells it."""
    for kwargs in ({"max_pixels": 1 << 18}, {"max_soft_tokens": 70}, {"in_token_limit": 256}):
        changed = engine.family.with_processor_kwargs(kwargs)
        if changed != engine.family:
            engine.family = changed
            return


@fault("other-release", "One pod that computes prompts still runs the image of the release before.")
def _other_release(settings: Settings, catalog: Catalog) -> None:
    pod = settings.prefilling()[0]
    newest = list(numbers(pod.engine.version)) or [0, 0, 0]
    newest[1] = max(0, newest[1] - 1)
    pod.engine.version = "v" + ".".join(map(str, newest))


@fault("other-model", "One decode pod was started with another model.")
def _other_model(settings: Settings, catalog: Catalog) -> None:
    served = settings.model
    name = next(name for name in catalog.models if name != served)
    engine = settings.of("decode")[0].engine
    engine.model = engine.served = name
    engine.family = catalog.family_of(catalog.models[name])


@fault("served-name", "--served-model-name gives the model a short name.")
def _served_name(settings: Settings, catalog: Catalog) -> None:
    for pod in _own(settings):
        pod.engine.served = pod.engine.served.rpartition("/")[2].lower()


@fault("wrong-weights", "The pods serve another model under the right name.", server="vllm")
def _wrong_weights(settings: Settings, catalog: Catalog) -> None:
    served = settings.of("decode")[0].engine.family.slug
    other = family_of(catalog.families, "qwen2.5-vl" if served != "qwen2.5-vl" else "gemma-3")
    for pod in _own(settings):
        pod.engine.family, pod.engine.model = other, "/models/current"


@fault("empty-answers", "The chat template is wrong, and the model ends its answer at once: 200 with empty text.")
def _empty(settings: Settings, catalog: Catalog) -> None:
    for pod in _answering(settings):
        pod.engine.answers = "empty"


@fault("garbage-answers", "The weights are quantised in a way that the engine does not know: 200 with garbage.")
def _garbage(settings: Settings, catalog: Catalog) -> None:
    for pod in _answering(settings):
        pod.engine.answers = "garbage"


@fault("blind-answers", "The vision tower's weights were not loaded: every picture is the same to the model.")
def _blind(settings: Settings, catalog: Catalog) -> None:
    for pod in _answering(settings):
        pod.engine.answers = "blind"
