"""What the catalog expects of a deployment: what its router is to charge for a picture, and what its model takes.

Also the requests that show both: a picture that nobody has sent before, then text of a length known to the byte.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.catalog.families import Family, find
from mmdeploy.errors import MmdeployError
from mmdeploy.estimator import bodies, producers
from mmdeploy.estimator.pairing import TOLERANCE_PERCENT, natural_estimate
from mmdeploy.estimator.question import VIDEO_FEATURE
from mmdeploy.estimator.router import BYTES_PER_TOKEN, Estimator
from mmdeploy.estimator.visual import image_tokens
from mmdeploy.verify import configuration
from mmdeploy.verify.bodies import CHAT, Planned, Writer
from mmdeploy.verify.evidence import Medium
from mmdeploy.verify.pictures import COLOURS, Picture

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.verify.facts import Facts

Size = tuple[int, int]

_PREFIX, _INFLIGHT = "approx-prefix-cache-producer", "inflight-load-producer"
_ROOM = 4096
_ENDS = [" ", "\n", ".", ","]
_SENTENCE = "The lighthouse turns all night, and each ship that passes signs its book with a name and an hour. "


@dataclass(frozen=True)
class Expectation:
    """What the catalog and the bundle say of a deployment's prices."""

    family: Family | None
    """How the served model counts; None where the catalog does not know it."""
    estimator: Estimator | None
    """How the router is configured to price; None where that is not known."""
    remarks: tuple[str, ...] = ()
    """What is odd about the configuration, such as a token-producer that nobody listens to."""
    silent: str = ""
    """Why the router has no price of its own; empty where it has one."""
    natural: Estimator | None = None
    """The estimator that fits the model best."""

    def price(self, size: Size, hidden: bool = False) -> int | None:
        """What the router is configured to charge; ``hidden`` for a picture whose size it cannot read."""
        if self.estimator is None:
            return None
        return self.estimator.image_unseen() if hidden else self.estimator.image(*size)

    def guess(self, size: Size, hidden: bool = False) -> int | None:
        """What to look for first: the configured price, or else that of the estimator that fits the model."""
        if self.estimator is not None or self.natural is None or hidden:
            return self.price(size, hidden)
        return self.natural.image(*size)

    def tokens(self, size: Size) -> int | None:
        """What the model takes."""
        return image_tokens(self.family, *size) if self.family is not None else None

    def tolerance(self, size: Size, taken: int) -> float:
        """Percent of ``taken`` by which a price may be off: as `mmdeploy.estimator.pairing.judge` has it, more than its
        tolerance only where no setting of the router follows the model."""
        if self.family is None or self.natural is None:
            return TOLERANCE_PERCENT
        own = image_tokens(self.family, *size)
        unavoidable = abs(self.natural.image(*size) - own) / own * 100
        followable = self.family.kind != "tiles" and unavoidable <= TOLERANCE_PERCENT
        return TOLERANCE_PERCENT if followable else unavoidable + TOLERANCE_PERCENT

    @property
    def sure(self) -> bool:
        """Whether the model's parameters were confirmed, not remembered."""
        return self.family is not None and not self.family.confidence


def expectation(facts: Facts) -> Expectation:
    """What is known beforehand of this deployment."""
    catalog, config = facts.catalog, facts.picker_config
    family = family_of(facts)
    video = VIDEO_FEATURE in catalog.release(facts.targets.release).features
    natural = None
    if family is not None:
        natural = Estimator.from_block(natural_estimate(family, video_supported=video), video_supported=video)
    if not config:
        return Expectation(family, None, natural=natural)
    if not _weighs(catalog, config):
        return Expectation(family, None, silent="no plugin of this picker's configuration weighs tokens")
    try:
        producer = producers.from_text(json.dumps(config), "the bundle's picker configuration")
        if producer.precise:
            return Expectation(family, None, silent="the router asks a model server for every count (precise routing)")
        estimator = Estimator.from_block(producer.estimate, video_supported=video)
    except MmdeployError as problem:
        return Expectation(family, None, (problem.found,), natural=natural)
    return Expectation(family, estimator, producer.remarks, natural=natural)


def _weighs(catalog: Catalog, config: Mapping[str, Any]) -> bool:
    types = {str(item.get("type")) for item in configuration.plugins(config)}
    needing = catalog.table("lint-estimator")["needsTokens"]
    return bool(types & {*needing, producers.PRODUCER, producers.LEGACY_PRODUCER})


def family_of(facts: Facts) -> Family | None:
    """The family of the served model, with the processor settings of the bundle; None where nobody knows it."""
    spec = facts.targets.configuration.get("spec") or {}
    name = str(spec.get("model") or facts.targets.model)
    family = _named(facts.catalog, name)
    if family is None:
        return None
    try:
        if isinstance(spec.get("processorConfig"), Mapping):
            family = family.with_processor_config(spec["processorConfig"])
        if isinstance(spec.get("mmProcessorKwargs"), Mapping):
            family = family.with_processor_kwargs(spec["mmProcessorKwargs"])
    except MmdeployError:
        return None
    return family


def _named(catalog: Catalog, name: str) -> Family | None:
    """By the catalog's list of models, else by the family's own name, else by what such models are called."""
    listed = catalog.models.get(name)
    if listed is not None:
        return catalog.family_of(listed)
    last = name.rsplit("/", 1)[-1].lower()
    try:
        return find(catalog.families, last)
    except MmdeployError:
        pass
    names: Mapping[str, str | None] = catalog.table("lint-estimator")["names"]
    slug = next((slug for pattern, slug in names.items() if re.search(pattern, last)), None)
    return catalog.families.get(slug) if slug else None


@dataclass(frozen=True)
class Plan:
    """``pricing`` of ``catalog/metrics.yaml``: which pictures are sent, and how many requests that may take."""

    priced: tuple[Size, ...]
    """Price and tokens are both measured."""
    counted: tuple[Size, ...]
    """Only the tokens: what the price is there follows from the others."""
    hidden: Size
    """Sent in a format that the router does not read."""
    requests: int
    smallest_block: int
    marks: int
    share: float
    rows: int
    patient_rows: int

    @classmethod
    def of(cls, catalog: Catalog) -> Plan:
        """As the catalog has it."""
        said = catalog.table("metrics")["pricing"]
        sizes = {name: tuple(tuple(size) for size in said[name]) for name in ("priced", "counted")}
        return cls(
            sizes["priced"],
            sizes["counted"],
            tuple(said["hidden"]),
            said["requests"],
            said["smallestBlock"],
            said["marks"],
            said["closeShare"],
            said["rows"],
            said["patientRows"],
        )


def block_of(facts: Facts, engine_blocks: Sequence[int]) -> int:
    """Tokens of a block of the router's prefix index: what the engines say, unless the configuration says otherwise."""
    least = Plan.of(facts.catalog).smallest_block
    for item in configuration.plugins(facts.picker_config):
        parameters = item.get("parameters") or {}
        if item.get("type") == _PREFIX and parameters.get("autoTune") is False:
            return int(parameters.get("blockSizeTokens") or 16)
    return max([least, *engine_blocks])


def exact_producer(facts: Facts) -> str | None:
    """The name of a second load producer that counts an estimate whole, to the token, where one is configured."""
    for item in configuration.plugins(facts.picker_config):
        parameters = item.get("parameters") or {}
        named = item.get("name", _INFLIGHT) != _INFLIGHT and item.get("type") == _INFLIGHT
        whole = parameters.get("addEstimatedOutputTokens") and parameters.get("outputRatio") == 1
        if named and whole and not parameters.get("maxEstimatedOutputTokens"):
            return str(item["name"])
    return None


@dataclass(frozen=True)
class Letter:
    """Writes the requests: a picture, then text of so many tokens as the router counts them (4 bytes each, the role's
    name among them)."""

    write: Writer

    def text(self, tokens: int) -> str:
        """Text that makes ``tokens`` together with the role."""
        nbytes = (tokens - 1) * BYTES_PER_TOKEN
        return (_SENTENCE * (nbytes // len(_SENTENCE) + 1))[:nbytes]

    def asked(
        self, id: str, purpose: str, tokens: int, picture: Picture | None, hidden: bool = False, whole: bool = False
    ) -> Planned:
        """One request; without a picture it is the text alone. ``whole`` leaves room for an answer as long as the
        prompt, which some pickers add to their estimate, and ends the answer at its first word all the same."""
        parts: list[dict[str, Any]] = []
        media: tuple[Medium, ...] = ()
        if picture is not None:
            kind = "bmp" if hidden else "png"
            url = f"data:image/{kind};base64,{base64.b64encode(picture.data).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
            media = (picture.medium,)
        parts.append({"type": "text", "text": self.text(tokens)})
        body = self.write.body(parts, max_tokens=_ROOM if whole else 1)
        return Planned(id, purpose, {**body, "stop": _ENDS} if whole else body, media=media)

    def picture(self, size: Size, hidden: bool = False) -> Picture:
        """A picture that nobody has sent before."""
        shown = self.write.picture(*size)
        return _bitmap(shown, self.write.nonce()) if hidden else shown


def _bitmap(like: Picture, nonce: str) -> Picture:
    """A BMP file of the same size and colour, with a nonce in its first pixels' lowest bits."""
    red, green, blue = COLOURS[like.colour]
    bits = f"{int(nonce, 16):048b}"
    width, height = like.width, like.height
    pad = b"\0" * (-3 * width % 4)
    rows = []
    for y in range(height):
        row = bytearray(bytes((blue, green, red)) * width)
        if y == 0:
            for x in range(min(width, len(bits))):
                row[3 * x] = blue - int(bits[x]) if blue else int(bits[x])
        rows.append(bytes(row) + pad)
    pixels = b"".join(rows)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(pixels), 2835, 2835, 0, 0)
    head = struct.pack("<2sIHHI", b"BM", 14 + len(info) + len(pixels), 0, 0, 14 + len(info))
    return Picture(like.colour, width, height, head + info + pixels)


def text_tokens(planned: Planned) -> int:
    """Tokens that the router counts for everything but the pictures."""
    return bodies.read(planned.body, CHAT).text_tokens


@dataclass(frozen=True)
class Lookalikes:
    """Families and estimators that would explain what was measured."""

    catalog: Catalog

    @cached_property
    def _settings(self) -> tuple[Family, ...]:
        return tuple(family.with_setting(name) for family in self.catalog.families.values() for name in family.settings)

    def families(self, taken: Mapping[Size, int], marks: int) -> Iterator[Family]:
        """Families (and settings) that take these tokens, but for the same few marks around every picture."""
        for family in self._settings:
            extra = {tokens - image_tokens(family, *size) for size, tokens in taken.items()}
            if len(taken) > 1 and len(extra) == 1 and 0 <= min(extra) <= marks:
                yield family

    def estimates(self, fits: Mapping[Size, Any]) -> Iterator[str]:
        """Estimates that charge these prices; ``fits`` maps a size to the prices that are possible."""
        if not fits:
            return
        if all(Estimator().image(*size) in prices for size, prices in fits.items()):
            yield "the router's built-in defaults"
        for family in self.catalog.families.values():
            natural = Estimator.from_block(natural_estimate(family, video_supported=True))
            if all(natural.image(*size) in prices for size, prices in fits.items()):
                yield f"the estimate for {family.title}"


__all__ = [
    "Expectation",
    "Letter",
    "Lookalikes",
    "Plan",
    "Size",
    "block_of",
    "exact_producer",
    "expectation",
    "family_of",
    "text_tokens",
]
