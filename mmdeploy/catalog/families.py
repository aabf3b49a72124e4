"""The model families whose token counts are known: ``blueprints/catalog/families.yaml``, read and checked.

A family has one or more settings, spelt as the catalog spells them ("Gemma-4 (max_soft_tokens=140)"); a `Family` is
one setting of one family. A checkpoint's own processor files and the engine's ``--mm-processor-kwargs`` make
variants of it. A family that the catalog does not know is an error that lists the known ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from mmdeploy import documents
from mmdeploy.catalog import processor_config
from mmdeploy.catalog.family_parameters import (
    AUDIO_ALGORITHMS,
    IMAGE_ALGORITHMS,
    VIDEO_ALGORITHMS,
    ConvolvedAudio,
    ImageParameters,
    Kind,
    VideoParameters,
    kind_of,
)
from mmdeploy.errors import BlueprintError, UnknownModelError, UsageError

FILE_NAME = "families.yaml"

P = TypeVar("P", bound=ImageParameters | VideoParameters | ConvolvedAudio)


@dataclass(frozen=True)
class Family:
    """One setting of a model family: how it counts, and what the router should be told about it."""

    slug: str
    """Key in the catalog, such as ``qwen3-vl``."""
    title: str
    """What people call the family."""
    setting: str
    """The setting that this object is; one of ``settings``, or a description of where it was read from."""
    settings: tuple[str, ...]
    """Every setting of the family by its exact name, the default first."""
    algorithm: str
    """How images are counted: a name in `IMAGE_ALGORITHMS`."""
    image: ImageParameters
    video: VideoParameters | None
    audio: ConvolvedAudio | None
    processors: Mapping[str, Mapping[str, Any]]
    """Image processor classes that may serve the family, each with the class's own defaults."""
    other_processors: tuple[str, ...]
    """Image processor classes that the family uses too, but that say nothing of the model (CLIP's)."""
    processor_classes: tuple[str, ...]
    """Processor classes that only this family uses."""
    estimate: Mapping[str, Any] | None
    """The router's ``estimate:`` block that fits; None when parameters were changed and it must be computed."""
    confidence: str
    """How sure the parameters are; empty when they were read out of code or confirmed by a running engine."""
    source: str
    notes: str
    variants: Mapping[str, Mapping[str, Any]]
    """What each setting changes; `with_setting` applies it."""

    @property
    def parameters(self) -> ImageParameters:
        """The numbers behind the image count."""
        return self.image

    @property
    def kind(self) -> Kind:
        """What the count follows: ``area``, ``fixed`` or ``tiles``."""
        return kind_of(self.image)

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities whose counts are known."""
        known = {"image": self.image, "video": self.video, "audio": self.audio}
        return tuple(name for name, parameters in known.items() if parameters is not None)

    def with_setting(self, name: str) -> Family:
        """This family in another of its settings.

        Raises `UnknownModelError` for a name that is none of them.
        """
        if name not in self.variants:
            raise UnknownModelError(
                f"{self.title} has no setting {name!r}", nearest=_nearest(name, self.settings) or self.settings
            )
        change = self.variants[name]
        return replace(
            self,
            setting=name,
            image=_replaced(self.image, change.get("image", {})),
            estimate=change.get("estimate", self.estimate),
            confidence=change.get("confidence", self.confidence),
            source=change.get("source", self.source),
            notes=change.get("notes", self.notes),
        )

    def with_processor_config(self, config: Mapping[str, Any]) -> Family:
        """The family as a checkpoint's ``preprocessor_config.json`` or ``processor_config.json`` makes it.

        A limit that the file leaves out takes the default of the processor class that it names; patch and merge
        sizes stay the family's, because the engine takes those from the model's configuration.

        Raises `UsageError` for a file of another kind of model or with a value that cannot be.
        """
        named = processor_config.processor_type(config)
        used = (*self.processors, *self.other_processors)
        if named and used and named not in used:
            raise UsageError(
                f"the file configures {named}, which {self.title} does not use (it uses {', '.join(used)})",
                next_step="leave the model out, so that the file alone decides, or give the file of this model",
            )
        base = _replaced(self.image, self.processors.get(named, {})) if named else self.image
        image = processor_config.apply(base, config)
        video = processor_config.apply_video(self.video, config, flat=False) if self.video else None
        return self._with(image, video, f"{self.title} (its processor file)")

    def with_processor_kwargs(self, kwargs: Mapping[str, Any]) -> Family:
        """The family as the engine's ``--mm-processor-kwargs`` make it; ``images_kwargs`` overrule the top level.

        Keys that do not change the count are passed over, as the engine does. Raises `UsageError` for values that
        the engine would refuse.
        """
        video = processor_config.apply_video(self.video, kwargs, flat=True) if self.video else None
        return self._with(processor_config.apply(self.image, kwargs), video, self.setting)

    def _with(self, image: ImageParameters, video: VideoParameters | None, setting: str) -> Family:
        if image == self.image and video == self.video:
            return self
        estimate = self.estimate if image == self.image else None
        return replace(self, image=image, video=video, setting=setting, estimate=estimate)


def load_families(blueprints_dir: Path) -> Mapping[str, Family]:
    """Every family of ``<blueprints_dir>/catalog/families.yaml`` in its default setting, by slug.

    Raises `BlueprintError` with file and line for what is missing, unknown or of the wrong type.
    """
    document = documents.read(blueprints_dir / "catalog" / FILE_NAME, BlueprintError)
    listed = document.value.get("families") if isinstance(document.value, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise BlueprintError("`families` must be a mapping of slugs to families", origin=document.origin(()))
    families: dict[str, Family] = {}
    for slug, entry in listed.items():
        try:
            families[slug] = _family(slug, entry)
        except _EntryError as problem:
            at = document.origin(("families", slug, *problem.path))
            raise BlueprintError(f"family {slug}: {problem}", origin=at) from None
    return MappingProxyType(families)


def find(families: Mapping[str, Family], name: str) -> Family:
    """The family or setting called ``name``: a setting's exact name, a slug or a title; case does not matter.

    Raises `UnknownModelError` that lists the nearest names, or all slugs when none is near.
    """
    wanted = name.strip().casefold()
    for family in families.values():
        for setting in family.settings:
            if setting.casefold() == wanted:
                return family.with_setting(setting)
    for slug, family in families.items():
        if wanted in (slug.casefold(), family.title.casefold()):
            return family
    known = [setting for family in families.values() for setting in family.settings]
    raise UnknownModelError(
        f"the catalog knows no model family called {name!r}; it knows {', '.join(families)}",
        nearest=_nearest(name, [*known, *families]) or tuple(families),
        next_step="give the checkpoint's preprocessor_config.json with --processor-config",
    )


def from_processor_config(config: Mapping[str, Any], families: Mapping[str, Family]) -> Family:
    """The family of a model that is not in the catalog, recognised by the classes that its processor file names.

    ``processor_class`` decides first (it names one family), then ``image_processor_type``.
    Raises `UnknownModelError` with the known classes when neither is known.
    """
    processor = config.get("processor_class")
    for family in families.values():
        if processor in family.processor_classes:
            return family.with_processor_config(config)
    named = processor_config.processor_type(config)
    for family in families.values():
        if named is not None and named in family.processors:
            recognised = replace(family, title=named, settings=(), video=None, audio=None, estimate=None)
            return replace(recognised.with_processor_config(config), setting=f"{named} (from its processor file)")
    classes = sorted({name for family in families.values() for name in (*family.processors, *family.processor_classes)})
    given = processor or named
    raise UnknownModelError(
        f"the processor file names {given}, whose arithmetic is not known"
        if given
        else "the processor file names neither processor_class nor image_processor_type, so nothing says how it counts",
        nearest=_nearest(str(given), classes) if given else list(families),
        next_step=f"known families: {', '.join(families)}; or give an --estimator block, which is taken as it is",
    )


class _EntryError(Exception):
    """A family's entry is wrong at ``path`` under it."""

    def __init__(self, found: str, *path: str) -> None:
        super().__init__(found)
        self.path = path


_REQUIRED_TYPES: dict[str, type] = {"title": str, "image": dict, "settings": dict, "source": str}
_OPTIONAL_TYPES: dict[str, type] = {
    "video": dict,
    "audio": dict,
    "processors": dict,
    "otherProcessors": list,
    "processorClasses": list,
    "estimate": dict,
    "confidence": str,
    "notes": str,
}
_SETTING_TYPES: dict[str, type] = {"image": dict, "estimate": dict, "confidence": str, "source": str, "notes": str}


def _family(slug: str, entry: Any) -> Family:
    _check(entry, _REQUIRED_TYPES | _OPTIONAL_TYPES)
    for key in _REQUIRED_TYPES.keys() - entry.keys():
        raise _EntryError(f"`{key}` is missing")
    variants = {name: change or {} for name, change in entry["settings"].items()}
    if not variants:
        raise _EntryError("`settings` must name at least one setting", "settings")
    algorithm, image = _parameters(entry["image"], IMAGE_ALGORITHMS, "image")
    processors = {name: defaults or {} for name, defaults in entry.get("processors", {}).items()}
    for name, change in variants.items():
        _check(change, _SETTING_TYPES, "settings", name)
        _check_fields(image, change.get("image", {}), "settings", name, "image")
    for name, defaults in processors.items():
        _check_fields(image, defaults, "processors", name)
    family = Family(
        slug=slug,
        title=entry["title"],
        setting=next(iter(variants)),
        settings=tuple(variants),
        algorithm=algorithm,
        image=image,
        video=_parameters(entry["video"], VIDEO_ALGORITHMS, "video")[1] if "video" in entry else None,
        audio=_parameters(entry["audio"], AUDIO_ALGORITHMS, "audio")[1] if "audio" in entry else None,
        processors=processors,
        other_processors=tuple(entry.get("otherProcessors", ())),
        processor_classes=tuple(entry.get("processorClasses", ())),
        estimate=entry.get("estimate"),
        confidence=entry.get("confidence", ""),
        source=entry["source"],
        notes=entry.get("notes", ""),
        variants=MappingProxyType(variants),
    )
    return family.with_setting(family.setting)


def _parameters(entry: Any, algorithms: Mapping[str, type[P]], *path: str) -> tuple[str, P]:
    """The algorithm's name and its parameters, out of ``{algorithm: NAME, **parameters}``."""
    values = dict(entry) if isinstance(entry, dict) else {}
    algorithm = values.pop("algorithm", None)
    if algorithm not in algorithms:
        raise _EntryError(f"`algorithm` must be one of {', '.join(algorithms)}, not {algorithm!r}", *path)
    parameters = algorithms[algorithm]
    missing = {field.name for field in fields(parameters)} - values.keys()
    if missing:
        raise _EntryError(f"algorithm {algorithm} lacks {', '.join(sorted(missing))}", *path)
    _check_fields(parameters, values, *path)
    return algorithm, parameters(**{name: _plain(value) for name, value in values.items()})


def _replaced(parameters: P, change: Mapping[str, Any]) -> P:
    """``parameters`` with some values changed, by names that `_check_fields` has seen."""
    return replace(parameters, **{name: _plain(value) for name, value in change.items()}) if change else parameters


def _plain(value: Any) -> Any:
    """YAML's lists as tuples, so that parameters can be keys of a cache."""
    return tuple(_plain(item) for item in value) if isinstance(value, list) else value


def _check(entry: Any, types: Mapping[str, type], *path: str) -> None:
    if not isinstance(entry, dict):
        raise _EntryError("must be a mapping", *path)
    for key, value in entry.items():
        if key not in types:
            raise _EntryError(f"unknown key `{key}`; known: {', '.join(types)}", *path, key)
        if not isinstance(value, types[key]):
            raise _EntryError(f"`{key}` must be a {_YAML_WORDS[types[key]]}, not {value!r}", *path, key)


_YAML_WORDS: dict[Any, str] = {str: "text", dict: "mapping", list: "list"}


def _check_fields(parameters: Any, values: Any, *path: str) -> None:
    """Every value has the name and the type of a field of ``parameters`` (an object or a class)."""
    types = {field.name: str(field.type).partition("[")[0] for field in fields(parameters)}
    _check(values, dict.fromkeys(types, object), *path)
    for name, value in values.items():
        kinds = {"int": (int,), "float": (int, float), "bool": (bool,), "tuple": (list,)}[types[name]]
        if type(value) not in kinds:
            raise _EntryError(f"`{name}` must be of type {types[name]}, not {value!r}", *path, name)


def _nearest(name: str, known: Any) -> tuple[str, ...]:
    by_folded = {item.casefold(): item for item in known}
    return tuple(by_folded[match] for match in difflib.get_close_matches(name.casefold(), list(by_folded), n=3))
