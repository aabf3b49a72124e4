"""What an estimate is about: one model, and one router's way to price."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.families import Family, find, from_processor_config
from mmdeploy.documents import parse
from mmdeploy.errors import FindingsError, UnknownModelError, UsageError
from mmdeploy.estimator.pairing import TOLERANCE_PERCENT, Pairing, judge, natural_estimate
from mmdeploy.estimator.producers import Producer
from mmdeploy.estimator.router import Estimator

VIDEO_FEATURE = "video-estimate"
"""What a release's list of features calls the router's video estimate (router v0.10.0 on)."""


@dataclass(frozen=True)
class Question:
    """A model and an estimator."""

    model: str
    """As the person said it."""
    family: Family
    release: str
    video_supported: bool
    producer: Producer
    given: bool
    """True when the person brought the estimator, False when it is the catalog's."""
    estimator: Estimator | None
    """None under precise routing, which counts real tokens."""
    tolerance_percent: float

    @cached_property
    def pairing(self) -> Pairing | None:
        """How estimator and model go together over common sizes; None under precise routing."""
        if self.estimator is None:
            return None
        return judge(
            self.producer.estimate,
            self.family,
            video_supported=self.video_supported,
            tolerance_percent=self.tolerance_percent,
        )

    def check(self) -> None:
        """Raise `FindingsError` when an estimator that the person brought is off by more than the tolerance."""
        pairing = self.pairing if self.given else None
        if pairing is None or abs(pairing.worst.error_percent) <= self.tolerance_percent:
            return
        worst = pairing.worst
        raise FindingsError(
            f"the estimator is off by {worst.error_percent:+.0f} % at {worst.width}x{worst.height}, which is more than "
            f"the tolerance of {self.tolerance_percent:g} %; {pairing.reason}",
            origin=self.producer.origin,
            nearest=[json.dumps(pairing.suggestion, separators=(", ", ": "))] if pairing.followable else [],
            next_step=pairing.advice or None,
        )


def ask(
    catalog: Catalog,
    *,
    model: str | None,
    processor_config: Mapping[str, Any] | None = None,
    processor_kwargs: Mapping[str, Any] | None = None,
    release: str | None = None,
    producer: Producer | None = None,
    tolerance_percent: float | None = None,
) -> Question:
    """Put the question together; ``producer`` None takes the estimate that fits the model.

    Raises `UnknownModelError`, `UsageError` for processor files and arguments that cannot be and for an estimate with
    which the router does not start.
    """
    with _origin("--processor-config"):
        family = _family(catalog, model, processor_config)
    if processor_kwargs:
        with _origin("--mm-processor-kwargs"):
            family = family.with_processor_kwargs(processor_kwargs)
    name = release or catalog.release_names[0]
    video = VIDEO_FEATURE in catalog.release(name).features
    chosen = producer or Producer("the catalog", natural_estimate(family, video_supported=video))
    with _origin(chosen.origin):
        estimator = None if chosen.precise else Estimator.from_block(chosen.estimate, video_supported=video)
    return Question(
        model=model or family.title,
        family=family,
        release=name,
        video_supported=video,
        producer=chosen,
        given=producer is not None,
        estimator=estimator,
        tolerance_percent=TOLERANCE_PERCENT if tolerance_percent is None else tolerance_percent,
    )


@contextmanager
def _origin(place: str) -> Iterator[None]:
    """Say where a refusal comes from that does not say so itself."""
    try:
        yield
    except UsageError as refusal:
        refusal.origin = refusal.origin or place
        raise


def _family(catalog: Catalog, model: str | None, config: Mapping[str, Any] | None) -> Family:
    """The family by served model, slug or setting; a processor file alone is enough, and decides for a new model."""
    if model is None:
        if config is None:
            raise UsageError(
                "which model?", origin="--model", next_step="mmdeploy models lists the served models it knows"
            )
        return from_processor_config(config, catalog.families)
    served = catalog.models.get(model) if "/" in model else None
    try:
        family = catalog.families[served.family] if served else find(catalog.families, model)
    except UnknownModelError as unknown:
        if config is None:
            raise _unknown(catalog, model, unknown) from None
        return from_processor_config(config, catalog.families)
    return family.with_processor_config(config) if config is not None else family


def _unknown(catalog: Catalog, model: str, unknown: UnknownModelError) -> UnknownModelError:
    """The refusal, with served models among the nearest names."""
    import difflib

    served = difflib.get_close_matches(model, catalog.models, n=2, cutoff=0.7)
    return UnknownModelError(
        unknown.found, origin="--model", nearest=[*served, *unknown.nearest], next_step=unknown.next_step
    )


def processor_file(text: str, name: str) -> Mapping[str, Any]:
    """A processor file's content. Raises `UsageError` with the position of what is no JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        value = parse(text, name).value
    if not isinstance(value, dict):
        raise UsageError("a processor file is a JSON object", origin=name)
    return value
