"""What the router is told about the model: the estimator's block, and the affinity filter's measured numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from mmdeploy.catalog import Catalog, Model, Release
from mmdeploy.catalog.families import Family, from_processor_config
from mmdeploy.documents import KeyPath
from mmdeploy.errors import EstimatorMismatchError, UsageError
from mmdeploy.estimator.pairing import Pairing, judge, natural_estimate
from mmdeploy.render.deployment import ResolvedRouter
from mmdeploy.render.expressions import Noted
from mmdeploy.render.values import Values
from mmdeploy.render.yamltext import dump

CALIBRATED = ("peakPrefillThroughput", "affinityThreshold", "maxTTFTPenaltyMs")


class Pricing:
    """Prices of one deployment. Expressions call `estimate` and `calibration`; what they never ask for is not read."""

    def __init__(
        self, catalog: Catalog, spec: Values, model: Model, release: Release, origin_of: Callable[[KeyPath], str]
    ) -> None:
        self._catalog, self._spec, self._model, self._release = catalog, spec, model, release
        self._origin_of = origin_of
        self.pairing: Pairing | None = None
        self.mismatch: str | None = None
        """Why a person's estimator does not fit, when they insisted on it."""
        self.borrowed: str | None = None
        """Whose measured numbers the affinity filter uses, when they are not this deployment's own."""
        self.origins: dict[str, str] = {}
        """Field of the spec → where its value came from, for what is derived here."""
        self.estimates = False
        """Whether the router prices by an estimate at all."""
        self._decided: dict[KeyPath, Any] = {}

    @property
    def video(self) -> bool:
        """Whether the release's router can price video."""
        return "video-estimate" in self._release.features

    @cached_property
    def family(self) -> Family | None:
        """How the served model turns media into tokens; None where neither catalog nor person says."""
        config, kwargs = self._spec["processorConfig"], self._spec["mmProcessorKwargs"]
        with self._blaming("processorConfig", "give the model's own preprocessor_config.json"):
            family = self._configured(config)
        with self._blaming(
            "mmProcessorKwargs", "see the model's preprocessor_config.json for what its processor takes"
        ):
            return family.with_processor_kwargs(kwargs) if family and kwargs else family

    @contextmanager
    def _blaming(self, field: str, next_step: str) -> Iterator[None]:
        """Errors of the estimator's room with the place where the person said it, and something to do."""
        try:
            yield
        except UsageError as problem:
            if problem.origin is None and self._spec[field] is not None:
                # The estimator's room names what is wrong as `estimate.image.…`; the spec may say where that stands.
                inner = re.search(r"\bestimate((?:\.\w+)+)", problem.found)
                steps = inner[1].strip(".").split(".") if inner else []
                problem.origin = self._origin_of((field, *steps))
            problem.next_step = problem.next_step or next_step
            raise

    def _configured(self, config: Mapping[str, Any] | None) -> Family | None:
        family = self._catalog.family_of(self._model) if self._model.listed else None
        if config is not None:
            families = self._catalog.families
            return family.with_processor_config(config) if family else from_processor_config(config, families)
        return family

    @property
    def from_memory(self) -> str:
        """What the model's parameters rest on, where nobody could confirm them; empty where they are sure."""
        sure = self._spec["processorConfig"] is not None or self.family is None or not self.estimates
        return "" if sure or self.family is None else self.family.confidence

    def estimate(self) -> dict[str, Any]:
        """The ``estimate:`` block: the person's, if it fits, or the one that fits the model.

        Raises `EstimatorMismatchError`, with both prices of a 1280x720 image and the block that fits.
        """
        self.estimates = True
        said, insisted = self._spec["estimator"], self._spec["allowMismatch"]
        family = self.family
        block = said if said is not None else natural_estimate(family, video_supported=self.video) if family else {}
        if family is not None:
            with self._blaming("estimator", "leave the estimator out to get the block that fits"):
                self.pairing = judge(block, family, video_supported=self.video)
            if not self.pairing.fits and said is not None:
                self.mismatch = self.pairing.reason
                if not insisted:
                    raise self._refusal(self.pairing)
        if said is None:
            self.origins["estimator"] = f"blueprints/catalog/families.yaml ({self._model.family or 'processor file'})"
        self._decided["estimator",] = block
        return block

    def _refusal(self, pairing: Pairing) -> EstimatorMismatchError:
        return EstimatorMismatchError(
            f"the estimator does not fit {self._model.name}: {pairing.reason}",
            origin=self._spec.place_of("estimator"),
            nearest=[dump({"estimator": pairing.suggestion})],
            next_step="leave the estimator out to get the block that fits, or insist with --allow-mismatch",
        )

    def calibration(self, tensor_parallel: int, accelerator: str) -> Any:
        """Parameters of prefix-cache-affinity-filter for the role that prefills, each with where it was measured."""
        rows = self._catalog.calibrations
        own = next((row for row in rows if (row["model"], row["accelerator"], row["tensorParallelSize"])
                    == (self._model.name, accelerator, tensor_parallel)), None)  # fmt: skip
        row = own or rows[0]
        measured = f"{row['model']}, TP {row['tensorParallelSize']} on {row['hardware']}"
        note = f"measured for {measured}" if own else f"borrowed, not measured here: it is that of {measured}"
        said: Any = self._spec["calibration"]
        parameters = {name: said[name] if said[name] is not None else row[name] for name in CALIBRATED}
        self._decided.update({("calibration", name): value for name, value in parameters.items()})
        if not any(said[name] is not None for name in CALIBRATED):
            self.origins["calibration"] = "blueprints/catalog/calibrations.yaml"
        from_row = [name for name in CALIBRATED if parameters[name] == row[name]]
        if own is None and from_row:
            self.borrowed = measured
        if len(from_row) == len(CALIBRATED):
            return Noted(parameters, note)
        return {name: Noted(value, note) if name in from_row else value for name, value in parameters.items()}

    def decided(self) -> Mapping[KeyPath, Any]:
        """Fields of the resolved spec that are settled here."""
        return self._decided

    def noted(self, router: ResolvedRouter) -> ResolvedRouter:
        """The router's configuration with what a reader must know beside the estimate."""
        note = self.mismatch and f"WARNING: does not fit {self._model.name}: {self.mismatch}"
        if note is None and self.pairing is not None and not self.pairing.followable:
            note = f"best setting there is: {self.pairing.reason}. {self.pairing.advice}"
        index = next(
            (at for at, plugin in enumerate(router.config["plugins"]) if plugin["type"] == "token-producer"), None
        )
        if not note or index is None:
            return router
        path: KeyPath = ("plugins", index, "parameters", "estimate")
        return replace(router, configNotes={**router.configNotes, path: note})
