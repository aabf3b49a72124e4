"""The control plane: etcd, API server, controller manager, scheduler and kwok, on loopback and random ports.

    with ControlPlane(directory) as plane:
        plane.kubectl("get", "nodes")

Everything it writes, logs among it, is in the directory; everything it starts ends with it, or with its process.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import time
import urllib.error
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.rig import crds, fleet, kubelet, netns, users
from tests.rig.api import Api, RefusedError, wait
from tests.rig.build import program
from tests.rig.programs import Program, free_ports
from tests.rig.routes import Gateways
from tests.rig.sets import Sets

_HERE = Path(__file__).resolve().parent


class FailedError(AssertionError):
    """A command that had to succeed did not; the text is what it said."""


@dataclass
class ControlPlane:
    """One running control plane and the ways to it."""

    directory: Path
    programs: dict[str, Program] = field(default_factory=dict)
    sets: Sets = field(init=False)
    gateways: Gateways = field(init=False)

    def __enter__(self) -> ControlPlane:
        atexit.register(self.stop)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        atexit.unregister(self.stop)

    # ------------------------------------------------------------------------------------------ starting and ending

    def start(self) -> None:
        """Start everything; return when pods can be scheduled on the fleet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._start("etcd", self._etcd())
        self._start("kube-apiserver", self._apiserver())
        self._await_server()
        kubelet.install(self.api())
        # Before the controllers start: the garbage collector looks for new kinds only every half minute.
        if not crds.unavailable():
            crds.install(self.api())
        self._start("kube-controller-manager", self._controllers())
        self._start("kube-scheduler", self._scheduler())
        fleet.create(self.api())
        users.grant_reading(self.api())
        self._start("kwok", self._kwok())
        self.sets = Sets(self.api())
        self.sets.start()
        self.gateways = Gateways(self.api())
        self.gateways.start()
        wait("the nodes are ready", self._nodes_ready)

    def stop(self) -> None:
        for name in ("sets", "gateways"):
            if name in self.__dict__:
                getattr(self, name).stop()
        for each in reversed(self.programs.values()):
            each.stop()

    def restart(self, name: str, pause: float = 0) -> None:
        """Kill a program and start it again on its ports, as after a crash of its node."""
        self.programs[name].stop(patience=0)
        time.sleep(pause)
        self.programs[name].start()
        if name in ("kube-apiserver", "etcd"):
            self._await_server()

    def _start(self, name: str, arguments: list[str]) -> None:
        log = self.directory / f"{name}.log"
        self.programs[name] = Program(name, [str(program(name)), *arguments], log, self._home)
        self.programs[name].start()

    def _await_server(self) -> None:
        wait("the API server is ready", self._server_ready, seconds=60, every=0.05)

    def _server_ready(self) -> bool:
        for each in self.programs.values():
            if not each.running:
                raise FailedError(f"{each.name} ended:\n" + "\n".join(each.complaints()))
        try:
            return self.api().get("/readyz") == "ok"
        except (OSError, urllib.error.URLError, RefusedError):  # no certificate yet, no port yet, not yet
            return False

    def _nodes_ready(self) -> bool:
        conditions = [node["status"].get("conditions", []) for node in self.api().items("/api/v1/nodes")]
        return all(any(each["type"] == "Ready" and each["status"] == "True" for each in some) for some in conditions)

    # --------------------------------------------------------------------------------------------------- the ways in

    def api(self, user: str = users.ADMIN) -> Api:
        return Api(self.server, self._users.tokens[user], str(self.authority))

    def kubeconfig(self, user: str = users.ADMIN) -> Path:
        return self._users.kubeconfig(user, self.server, self.authority)

    def environment(self, user: str = users.ADMIN) -> dict[str, str]:
        """What a program needs to act as this user: kubeconfig, the rig's kubectl and helm first on the PATH."""
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, **self._home, "PATH": path, "KUBECONFIG": str(self.kubeconfig(user))}

    def kubectl(self, *words: str | Path, user: str = users.ADMIN, stdin: str | None = None) -> str:
        return self.run("kubectl", *words, user=user, stdin=stdin)

    def helm(self, *words: str | Path, user: str = users.ADMIN) -> str:
        return self.run("helm", *words, user=user)

    def run(self, *words: str | Path, user: str = users.ADMIN, stdin: str | None = None) -> str:
        """What a command prints; it must succeed."""
        done = subprocess.run(
            words, capture_output=True, text=True, input=stdin, env=self.environment(user), check=False
        )
        if done.returncode:
            raise FailedError(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
        return done.stdout

    def write_log(self, namespace: str, pod: str, *lines: str, previous: tuple[str, ...] = ()) -> None:
        """What ``kubectl logs`` shall show of a pod; needs the rig's network."""
        kubelet.write_log(self.api(), self.directory, namespace, pod, list(lines), list(previous))

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._ports[2]}"

    @property
    def authority(self) -> Path:
        """The certificate that the API server made for itself."""
        return self.directory / "apiserver.crt"

    # ------------------------------------------------------------------------------------------------------ commands

    @cached_property
    def _ports(self) -> list[int]:
        return free_ports(4)

    @cached_property
    def _users(self) -> users.Directory:
        return users.Directory(self.directory)

    @cached_property
    def _home(self) -> dict[str, str]:
        """Nothing of the person who runs the tests is read or written: no kubeconfig, helm repository or cache."""
        home = self.directory / "home"
        home.mkdir(parents=True, exist_ok=True)
        helm = {f"HELM_{kind}_HOME": str(home / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {"HOME": str(home), "KUBECACHEDIR": str(home / "kube"), "KUBECONFIG": os.devnull, **helm}

    @cached_property
    def _bin(self) -> Path:
        folder = self.directory / "bin"
        folder.mkdir(exist_ok=True)
        for name in ("kubectl", "helm"):
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(program(name))
        return folder

    def _etcd(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in self._ports[:2])
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",  # what a test wrote need not outlive the machine
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        # It makes a certificate for itself before it reads keys, so that the key serves for tokens as well.
        key = self.directory / "apiserver.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports[0]}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[2]}",
            f"--cert-dir={self.directory}",
            # Where there is no route to anywhere, it finds no address of its own to announce.
            "--advertise-address=10.245.0.2",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--token-auth-file={self._users.token_file}",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            # It taints new nodes as not ready, and only the controller that is left out below would take that away.
            "--disable-admission-plugins=TaintNodesByCondition",
        ]

    def _client(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig()}", "--kube-api-qps=500", "--kube-api-burst=1000"]

    def _controllers(self) -> list[str]:
        return [
            *self._client(),
            # Nobody renews the fake nodes' leases in time: their pods would become not ready.
            "--controllers=*,-node-lifecycle-controller",
            f"--service-account-private-key-file={self.directory / 'apiserver.key'}",
            f"--root-ca-file={self.authority}",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _scheduler(self) -> list[str]:
        return [*self._client(), "--leader-elect=false", "--secure-port=0"]

    def _kwok(self) -> list[str]:
        arguments = [
            f"--kubeconfig={self.kubeconfig()}",
            "--manage-all-nodes=true",
            f"--cidr={netns.PODS}",
            f"--node-ip={kubelet.ADDRESS}",
            f"--config={_HERE / 'stages.yaml'}",
        ]
        if netns.inside():
            arguments += kubelet.arguments(self._ports[3], self.authority, self.directory / "apiserver.key")
        return arguments

    # ---------------------------------------------------------------------------------------------------------- logs

    def log_sizes(self) -> dict[str, int]:
        return {name: each.size() for name, each in self.programs.items()}

    def complaints(self, since: dict[str, int]) -> str:
        """What the programs complained of since the logs had those sizes."""
        parts = []
        for name, each in self.programs.items():
            lines = each.complaints(since.get(name, 0))
            if not each.running:
                lines.append(f"({name} is not running)")
            if lines:
                parts.append(f"{each.log}\n" + "\n".join(f"  {line}" for line in lines))
        return "\n".join(parts)
