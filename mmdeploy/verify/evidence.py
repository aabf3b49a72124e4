"""What was seen: requests that were sent and what came back, and metrics pages at named moments.

Plain data from end to end: it is saved as JSON, loaded again, and judged again with the same verdicts. No secret gets
in here: headers are kept without credentials, pictures as facts about them.

Times are seconds since the run began, on the clock of the machine that ran it; clocks of pods are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from mmdeploy.errors import UsageError
from mmdeploy.verify.shapes import built, fitted
from mmdeploy.verify.targets import from_data

SCHEMA_VERSION = 1
KIND = "Evidence"

Missing = Literal["unauthorised", "unreachable", "not found", "garbled", "failed"]
"""Why there is no metrics page: 401 or 403; no connection or no answer in time; 404; an answer that holds no metrics;
any other status."""


@dataclass(frozen=True)
class Sample:
    """One line of a metrics page."""

    name: str
    """As exposed: with ``_total``, ``_sum``, ``_count``."""
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    """One metrics page, restricted to what the catalog names."""

    endpoint: str
    """Name of the pod or picker."""
    moment: str
    """``start``, then one name a step: ``text/0`` is the moment after that step, ``quiet/0`` before all requests."""
    at: float
    samples: tuple[Sample, ...] = ()
    families: tuple[str, ...] = ()
    """Every family of the page by name, whether it has samples kept or not: what the engine *can* say."""
    missing: Missing | None = None
    detail: str = ""
    """The status or error in words where ``missing`` is set."""

    @property
    def readable(self) -> bool:
        """Whether there is a page at all. Absent families on a readable page are absent, not zero."""
        return self.missing is None

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[Sample]]:
        """Its lines by name."""
        found: dict[str, list[Sample]] = {}
        for sample in self.samples:
            found.setdefault(sample.name, []).append(sample)
        return found


@dataclass(frozen=True)
class Medium:
    """A picture that was sent, as facts about it."""

    kind: str
    colour: str
    width: int
    height: int
    size: int
    """Bytes of the file."""
    digest: str
    """First 16 hex digits of its SHA-256: the same picture has the same digest."""


@dataclass(frozen=True)
class Sent:
    """One request, and what came back. No answer is an answer too: ``status`` is None and ``error`` says why."""

    id: str
    """Unique in this run: ``text/0``, ``affinity.again/0``, ``models/decode-0``."""
    purpose: str
    """What it is for: ``text``, ``image``, ``affinity.first``, ``affinity.again``, ``affinity.other``, ``pictures``,
    ``headers``, ``gateway.text``, ``gateway.image``, ``models``, ``health``, ``version``; other probes add theirs."""
    target: str
    """``entry``, ``gateway``, or the name of the pod it went to directly."""
    method: str
    path: str
    headers: Mapping[str, str]
    nonce: str
    """Text or picture bytes that nobody else sends; also in the request's id header."""
    expected: tuple[str, ...] = ()
    """Words of which the answer must hold one."""
    media: tuple[Medium, ...] = ()
    started: float = 0.0
    seconds: float = 0.0
    first: float | None = None
    """Seconds to the first token, of a streamed answer."""
    status: int | None = None
    text: str = ""
    """The answer's text, cut to 2,000 characters."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Chosen fields of the answer: ``model``, ``finish_reason``, ``ec_transfer_params``, ``models``, ``version``, and
    chosen headers as ``header:NAME``."""
    error: str = ""
    """Why there was no answer, or what stood in it where it was no success."""

    @property
    def answered(self) -> bool:
        """Whether there was a 2xx status; that alone proves nothing."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def prompt_tokens(self) -> int | None:
        """``usage.prompt_tokens``, text and media together."""
        value = self.usage.get("prompt_tokens")
        return int(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class Step:
    """Requests between two moments at which every page was read and had settled."""

    name: str
    """``text``, ``image``, ``affinity.first``, …"""
    round: int
    before: str
    after: str
    requests: tuple[str, ...]
    """Ids, in the order in which they were sent."""
    settled: bool = True
    """Whether the last two readings of the counters agree; False where they still moved when patience ended."""


@dataclass(frozen=True)
class Observation:
    """Something seen that is neither a request nor a page: the quiet window, a probe that was not run."""

    kind: str
    """``quiet-window``, ``not-run``; other probes add theirs."""
    about: str
    detail: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Evidence:
    """Everything a judge may look at."""

    tool: str
    """``mmdeploy VERSION``, which collected it."""
    targets: Mapping[str, Any]
    """`mmdeploy.verify.targets.Targets.as_data`, without tokens."""
    plan: list[dict[str, Any]] = field(default_factory=list)
    """Probes in order: name, claims, requests, rounds."""
    requests: list[Sent] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is known yet of the pages, which are only ever added to."""
        self._pages: dict[tuple[str, str], Scrape] = {}
        self._indexed = 0

    def request(self, id: str) -> Sent:
        """The request of that id. Raises KeyError."""
        for sent in self.requests:
            if sent.id == id:
                return sent
        raise KeyError(id)

    def of(self, *purposes: str) -> Iterator[Sent]:
        """Requests for one of ``purposes``, in order."""
        return (sent for sent in self.requests if sent.purpose in purposes)

    def rounds(self, name: str) -> list[Step]:
        """Steps of that name, one a round."""
        return [step for step in self.steps if step.name == name]

    def sent_in(self, step: Step) -> list[Sent]:
        """The requests of a step."""
        return [self.request(id) for id in step.requests]

    def page(self, endpoint: str, moment: str) -> Scrape | None:
        """The metrics page of an endpoint at a moment; the last where it was read several times."""
        for scrape in self.scrapes[self._indexed :]:
            self._pages[scrape.endpoint, scrape.moment] = scrape
        self._indexed = len(self.scrapes)
        return self._pages.get((endpoint, moment))

    def observed(self, kind: str) -> Iterator[Observation]:
        """Observations of one kind."""
        return (item for item in self.observations if item.kind == kind)

    def as_data(self) -> dict[str, Any]:
        """The whole as JSON can hold it."""
        data = asdict(self)
        data["scrapes"] = [{**item, "samples": [[s["name"], s["labels"], s["value"]] for s in item["samples"]]}
                           for item in data["scrapes"]]  # fmt: skip
        return {"schemaVersion": SCHEMA_VERSION, "kind": KIND, **data}


def load(data: Any, origin: str) -> Evidence:
    """Evidence from what `Evidence.as_data` gave. Raises `UsageError` for anything else."""
    hint = "give a file that mmdeploy verify --save wrote"
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise UsageError("holds no evidence", origin=origin, next_step=hint)
    if data.get("schemaVersion") != SCHEMA_VERSION:
        said = data.get("schemaVersion")
        raise UsageError(f"has schemaVersion {said!r}; this mmdeploy reads {SCHEMA_VERSION}", origin=origin)
    try:
        return _whole({key: value for key, value in data.items() if key not in ("schemaVersion", "kind")})
    except (ValueError, RecursionError) as problem:
        why = str(problem) if isinstance(problem, ValueError) else "it is nested too deep"
        raise UsageError(f"is not whole: {why}", origin=origin, next_step=hint) from None


def _whole(data: Mapping[str, Any]) -> Evidence:
    """Raises ValueError for what `Evidence.as_data` never gives."""
    data = {**data, "scrapes": [_named(item) for item in fitted(list[Any], data.get("scrapes"), "scrapes")]}
    for key in ("plan", "requests", "steps", "observations"):
        if key not in data:
            raise ValueError(f"it lacks {key}")
    found = built(Evidence, data, "it")
    from_data(found.targets)
    if not found.plan:
        raise ValueError("its plan is empty: nothing was to be shown")
    for at, item in enumerate(found.plan):
        fitted(str, item.get("probe"), f"plan[{at}].probe")
        fitted(list[str], item.get("claims"), f"plan[{at}].claims")
        fitted(int, item.get("requests"), f"plan[{at}].requests")
    for observation in found.observations:
        fitted(list[str], observation.numbers.get("claims", []), f"the claims of {observation.kind}")
    ids = [sent.id for sent in found.requests]
    if twice := [id for id in ids if ids.count(id) > 1] if len(set(ids)) < len(ids) else []:
        raise ValueError(f"two requests are called {twice[0]!r}")
    for step in found.steps:
        if lost := [id for id in step.requests if id not in set(ids)]:
            raise ValueError(f"the step {step.name!r} names a request {lost[0]!r} that is not there")
        if not step.requests and step.name != "quiet":
            raise ValueError(f"the step {step.name!r} has no request")
    return found


def _named(item: Any) -> Any:
    """A page whose samples, saved as lists to be short, have the names of their parts."""
    samples = item.get("samples", []) if isinstance(item, dict) else None
    if not isinstance(samples, list) or any(not isinstance(each, list) or len(each) != 3 for each in samples):
        raise ValueError("a page in scrapes is none, or its samples are no triples")
    return {**item, "samples": [dict(zip(("name", "labels", "value"), each, strict=True)) for each in samples]}
