"""A whole simulated deployment: pods, router and the network between them, without a socket."""

from __future__ import annotations

from mmdeploy.rehearse.engine import Engine, Surroundings
from mmdeploy.rehearse.entry import EntryPoint, PickerMetrics
from mmdeploy.rehearse.messages import Handler, Message, Reply, UnreachableError
from mmdeploy.rehearse.picker import Member, Picker
from mmdeploy.rehearse.settings import Clock, PodSettings, Settings
from mmdeploy.rehearse.sglang import Encoder, Language
from mmdeploy.rehearse.sidecar import Sidecar
from mmdeploy.rehearse.traffic import Others
from mmdeploy.rehearse.vllm import Vllm

_ENGINES: dict[str, type[Engine]] = {"vllm": Vllm, "sglang": Language, "sglang-encode": Encoder}


class Pod:
    """A pod that runs: an engine, and a sidecar before it where there is one."""

    def __init__(self, settings: PodSettings, around: Surroundings) -> None:
        self.settings = settings
        self.engine = _ENGINES[settings.engine.server](settings, around)
        self.sidecar = Sidecar(settings.sidecar, self.engine) if settings.sidecar else None
        self.lost_at: float | None = None
        """When its node went away."""

    def listener(self, port: int) -> Handler | None:
        """What listens on a port of the pod."""
        if self.lost_at is not None or self.settings.gone:
            return None
        if self.sidecar is not None and port == self.settings.port:
            return self.sidecar
        return self.engine if port == self.settings.engine_port else None


class Deployment:
    """Everything that answers, by pod address. ``pods`` may be changed while it runs, by whoever follows real ones."""

    def __init__(self, settings: Settings, clock: Clock, seed: int = 0) -> None:
        self.settings, self.clock = settings, clock
        self._around = Surroundings(clock, settings.timings, settings.facts, self.send, self._side_channel, self._named)
        self.pods = {pod.name: Pod(pod, self._around) for pod in settings.pods}
        self.picker = Picker(settings.router, settings.facts, clock, self.members, seed)
        self._front = EntryPoint(settings.router, self.picker, clock, self._dispatched, self.members, seed)
        self.picker_metrics = PickerMetrics(settings.router, self.picker, self._fresh, self._failing)
        self._others = Others(settings.traffic, settings.model, clock, self._front, seed)
        self._asked = 0
        self._last = ""

    def door(self, host: str, port: int) -> Handler | None:
        """What listens at an address of the pod network; None for nothing. The router's own addresses are not here."""
        for pod in list(self.pods.values()):
            if pod.settings.place == host and pod.listener(port) is not None:
                return self.at(host, port)
        return None

    def entry(self, message: Message) -> Reply:
        """A client's request at the entry point."""
        self._others.catch_up()
        if message.method == "POST":
            self._happen()
        return self._front(message)

    def at(self, host: str, port: int) -> Handler:
        """What answers at an address of the pod network; it raises `UnreachableError` where nothing does."""

        def answer(message: Message) -> Reply:
            self._others.catch_up()
            return self.send(host, port, message)

        return answer

    def scrape_picker(self, message: Message) -> Reply:
        """A request to the picker's metrics port."""
        self._others.catch_up()
        return self.picker_metrics(message)

    def send(self, host: str, port: int, message: Message) -> Reply:
        """A request from one process to another. Raises `UnreachableError`."""
        for pod in list(self.pods.values()):
            listener = pod.listener(port) if pod.settings.place == host else None
            if listener is not None:
                return listener(message)
        raise UnreachableError(f"connection to {host}:{port} refused")

    def _dispatched(self, host: str, port: int, message: Message) -> Reply:
        """`send`, from the entry point: remembers who served last."""
        address = f"{host}:{port}"
        self._last = next((name for name, pod in list(self.pods.items()) if pod.settings.address == address), "")
        return self.send(host, port, message)

    def members(self) -> list[Member]:
        """Pods of the pool: Ready, and with all its labels. A lost one leaves when its metrics are stale."""
        now = self.clock.now()
        return [
            Member(pod.settings, pod.engine)
            for pod in list(self.pods.values())
            if self._selected(pod) and self._there(pod, now)
        ]

    def _selected(self, pod: Pod) -> bool:
        ready = pod.settings.ready and not pod.settings.gone
        return ready and self.settings.router.match_labels.items() <= pod.settings.labels.items()

    def _there(self, pod: Pod, now: float) -> bool:
        stale = self.settings.facts["picking"]["stalenessSeconds"]
        return pod.lost_at is None or now <= pod.lost_at + stale

    def _fresh(self, at: float) -> list[str]:
        if not self.settings.router.scrapes:
            return []
        every = (pod for pod in list(self.pods.values()) if self._selected(pod))
        return [pod.settings.name for pod in every if self._there(pod, at) and not self._closed(pod)]

    def _failing(self) -> list[str]:
        every = (pod for pod in list(self.pods.values()) if self._selected(pod) and self._there(pod, self.clock.now()))
        read = self.settings.router.scrapes
        return [pod.settings.name for pod in every if not read or pod.lost_at is not None or self._closed(pod)]

    def _closed(self, pod: Pod) -> bool:
        """Whether plain HTTP gets no metrics from the pod's port."""
        return pod.sidecar is not None and pod.sidecar.settings.tls

    def _side_channel(self, host: str, port: int) -> Engine | None:
        for pod in list(self.pods.values()):
            engine = pod.settings.engine
            if pod.settings.ip == host and port in (engine.ec_port, engine.kv_port):
                return pod.engine if pod.lost_at is None and not pod.settings.gone else None
        return None

    def _named(self, host: str, port: int) -> tuple[str, int] | None:
        """A headless Service gives names to pods that are ready."""
        pod = self.pods.get(host.partition(".")[0])
        if pod is None or not pod.settings.ready or pod.settings.gone:
            return None
        return pod.settings.place, pod.settings.engine_port if pod.settings.host else port

    def _happen(self) -> None:
        """Count a request at the entry point, and let happen what is due after so many."""
        self._asked += 1
        for event in self.settings.events:
            pod = self.pods.get(self._last)
            if event.after + 1 == self._asked and pod is not None:
                if event.what == "lost":
                    pod.lost_at = self.clock.now()
                else:
                    pod.engine.restart()
