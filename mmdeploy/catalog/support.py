"""Is this combination supported, and which are nearest?

A person says some of topology, accelerator, server, provider, model and release; the first row of the matrix that
fits decides the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmdeploy.catalog.catalog import AXES, Catalog, Model, Row
from mmdeploy.errors import UnknownModelError, UnsupportedError, UsageError
from mmdeploy.words import nearest


@dataclass(frozen=True)
class Choice:
    """A supported combination: its row of the matrix, the value of each axis, and how well it is tested."""

    row: Row
    values: Mapping[str, str]
    status: str


def choose(
    catalog: Catalog,
    said: Mapping[str, str],
    described: bool = False,
    origin_of: Callable[[str], str | None] = lambda axis: None,
) -> Choice:
    """The combination that fits what was said; ``origin_of(axis)`` says where.

    ``described`` means that the person brings what the catalog would say of an unlisted model. Raises `UsageError`
    for a word that no axis knows, `UnknownModelError` for an unlisted model without a description, and
    `UnsupportedError`, naming the nearest combinations that work, where no row fits.
    """
    _check_words(catalog, said, origin_of)
    name = said.get("model")
    model = catalog.models.get(name) if name else None
    if name and model is None:
        model = _unlisted(catalog, name, described, origin_of("model"))
    for choice in _fitting(catalog, said, model):
        return choice
    raise _unsupported(catalog, said, model)


def model_of(catalog: Catalog, name: str) -> Model:
    """The catalog's model, or one that says nothing but its name."""
    return catalog.models.get(name) or Model(name=name, family="", listed=False)


def _fitting(catalog: Catalog, said: Mapping[str, str], model: Model | None) -> Iterator[Choice]:
    """Rows that ship the model first, then rows where the catalog lists it (or the person describes it)."""
    for shipped in (True, False):
        for row in catalog.rows:
            if not _row_fits(row, said) or (model is not None and shipped != (model.name in row.models)):
                continue
            if model is not None and not shipped and not _serves(catalog, model, row):
                continue
            release = said.get("release") or next(name for name in catalog.release_names if name in row.status)
            values = {
                "topology": row.topology,
                "accelerator": row.accelerator,
                "server": row.server,
                "provider": said.get("provider") or row.providers[0],
                "model": model.name if model else row.models[0],
                "release": release,
            }
            yield Choice(row, values, row.status[release] if shipped else "unverified")


def _row_fits(row: Row, said: Mapping[str, str]) -> bool:
    return (
        said.get("topology") in (None, row.topology)
        and said.get("accelerator") in (None, row.accelerator)
        and said.get("server") in (None, row.server)
        and (said.get("provider") is None or said["provider"] in row.providers)
        and (said.get("release") is None or said["release"] in row.status)
    )


def _serves(catalog: Catalog, model: Model, row: Row) -> bool:
    """Whether the catalog says that this row's engine and accelerators can serve a model that the row does not ship."""
    if not model.listed:
        return row.roleAccelerators is None
    accelerators = (model.servers or {}).get(row.server, ())
    wanted = set((row.roleAccelerators or {"": row.accelerator}).values())
    encodes = "encode" in catalog.topologies[row.topology]["roles"]
    return wanted <= set(accelerators) and (not encodes or row.server in model.encodeServers)


def _check_words(catalog: Catalog, said: Mapping[str, str], origin_of: Callable[[str], str | None]) -> None:
    words: dict[str, Sequence[str]] = {
        "topology": list(catalog.topologies),
        "accelerator": list(catalog.accelerators),
        "server": list(dict.fromkeys(row.server for row in catalog.rows)),
        "provider": list(catalog.providers),
        "release": catalog.release_names,
    }
    for axis, choices in words.items():
        word = said.get(axis)
        if word is not None and word not in choices:
            raise UsageError(
                f"{axis} {word!r} is not in the catalog",
                origin=origin_of(axis),
                nearest=nearest(word, choices) or choices,
                next_step="mmdeploy matrix lists every supported combination",
            )


def _unlisted(catalog: Catalog, name: str, described: bool, origin: str | None) -> Model:
    if described:
        return Model(name=name, family="", listed=False)
    whole = [
        known for known in catalog.models if known.casefold().rsplit("/", 1)[-1] == name.casefold().rsplit("/", 1)[-1]
    ]
    if whole:
        raise UnknownModelError(
            f"model {name!r} is not written as Hugging Face names it",
            origin=origin,
            nearest=whole,
            next_step=f"-m {whole[0]}",
        )
    raise UnknownModelError(
        f"model {name!r} is not in the catalog, so nothing says how many tokens its media take",
        origin=origin,
        nearest=nearest(name, list(catalog.models)) or list(catalog.models)[:3],
        next_step="give its preprocessor_config.json with --processor-config FILE, or an --estimator block",
    )


def _unsupported(catalog: Catalog, said: Mapping[str, str], model: Model | None) -> UnsupportedError:
    asked = ", ".join(f"{axis} {said[axis]}" for axis in AXES if axis in said)
    why = ""
    if model is not None and model.listed and not _served_anywhere(catalog, said, model):
        why = f": {model.name} ({model.architecture}) is not served that way"
    return UnsupportedError(
        f"no supported combination has {asked}{why}",
        nearest=[spell(combination) for combination in nearest_combinations(catalog, said)],
        next_step="mmdeploy matrix lists every supported combination",
    )


def _served_anywhere(catalog: Catalog, said: Mapping[str, str], model: Model) -> bool:
    """Whether any row with the topology and server that were said can serve the model."""
    rows = (
        row
        for row in catalog.rows
        if said.get("topology") in (None, row.topology) and said.get("server") in (None, row.server)
    )
    return any(model.name in row.models or _serves(catalog, model, row) for row in rows)


def spell(combination: Mapping[str, str]) -> str:
    """A combination as the options that ask for it."""
    return (
        f"-t {combination['topology']} -a {combination['accelerator']} --server {combination['server']} "
        f"-p {combination['provider']} -m {combination['model']} --release {combination['release']}"
    )


def nearest_combinations(catalog: Catalog, said: Mapping[str, str], count: int = 3) -> list[dict[str, str]]:
    """Shipped combinations that agree with most of what was said, one for each way of giving in.

    Topology and server weigh most, the release least.
    """
    weights = {"topology": 4, "server": 4, "model": 3, "accelerator": 3, "provider": 2, "release": 1}

    def differing(combination: Mapping[str, str]) -> frozenset[str]:
        mixed = catalog.mixed_accelerators(combination)
        return frozenset(
            axis
            for axis, value in said.items()
            if value != combination[axis] and not (axis == "accelerator" and value in mixed)
        )

    def distance(combination: Mapping[str, str]) -> int:
        return sum(weights[axis] for axis in differing(combination))

    ways: dict[frozenset[str], dict[str, str]] = {}
    for combination in sorted(catalog.combinations(), key=distance):
        ways.setdefault(differing(combination), combination)
    return list(ways.values())[:count]
