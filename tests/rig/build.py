"""Builds the programs of the control plane from source, once: ``python -m tests.rig.build``.

Each go.mod under go/ is one family of programs with the versions they were released with; a family is built anew only
when its go.mod or go.sum changes. The programs stand in .rig/, which git ignores.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_BUILT = _HERE.parents[1] / ".rig"

# What a release build stamps into a program. Without it a server says that it is v0.0.0, and clients believe it.
_KUBERNETES = "k8s.io/component-base/version k8s.io/client-go/pkg/version"


class MissingError(Exception):
    """Something that this machine must have first; the text says what, and how to get it."""


@dataclass(frozen=True)
class Family:
    """Programs that are built from one go.mod."""

    name: str
    module: str  # whose version is the programs' version
    packages: tuple[str, ...]
    stamps: str  # packages or variables that are told the version

    @property
    def directory(self) -> Path:
        return _HERE / "go" / self.name

    @property
    def folder(self) -> Path:
        """Where its programs stand; another folder for other pins."""
        pins = b"".join((self.directory / file).read_bytes() for file in ("go.mod", "go.sum"))
        return _BUILT / f"{self.name}-{hashlib.sha256(pins + repr(self).encode()).hexdigest()[:12]}"

    @property
    def version(self) -> str:
        return self._said(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)")

    @property
    def go(self) -> tuple[int, int]:
        """The oldest Go that can build it."""
        major, minor = self._said(r"^go (\d+\.\d+)").split(".")
        return int(major), int(minor)

    def _said(self, pattern: str) -> str:
        found = re.search(pattern, (self.directory / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
        assert found, f"{self.directory}/go.mod has no {pattern}"
        return found[1]

    @property
    def programs(self) -> dict[str, str]:
        """Package by program name."""
        return {_program(package): package for package in self.packages}

    @property
    def linked(self) -> str:
        """Linker flags: no debug information (half the size), and the version."""
        major, minor = self.version.lstrip("v").split(".")[:2]
        flags = ["-s", "-w"]
        for stamp in self.stamps.split():
            if stamp.endswith("/version"):
                said = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
                flags += [f"-X {stamp}.{variable}={value}" for variable, value in said.items()]
            else:
                flags += [f"-X {stamp}={self.version}"]
        return " ".join(flags)


_NAMES = {"go.etcd.io/etcd/server/v3": "etcd", "helm.sh/helm/v3/cmd/helm": "helm3"}
"""Of packages that are not called as their last element."""


def _program(package: str) -> str:
    return _NAMES.get(package, package.rpartition("/")[2])


FAMILIES = (
    Family("etcd", "go.etcd.io/etcd/server/v3", ("go.etcd.io/etcd/server/v3",), ""),
    Family("kwok", "sigs.k8s.io/kwok", ("sigs.k8s.io/kwok/cmd/kwok",), "sigs.k8s.io/kwok/pkg/consts.Version"),
    Family(
        "controlplane",
        "k8s.io/kubernetes",
        tuple(
            f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
        _KUBERNETES,
    ),
    Family("helm", "helm.sh/helm/v4", ("helm.sh/helm/v4/cmd/helm",), "helm.sh/helm/v4/internal/version.version"),
    Family("helm3", "helm.sh/helm/v3", ("helm.sh/helm/v3/cmd/helm",), "helm.sh/helm/v3/internal/version.version"),
)


def program(name: str) -> Path:
    """Where a built program stands; :class:`MissingError` when it was not built."""
    for family in FAMILIES:
        if name in family.programs:
            path = family.folder / name
            if path.exists():
                return path
            raise MissingError(f"{name} {family.version} is not built: run `make e2e`, or `python -m tests.rig.build`")
    raise KeyError(name)


def unbuilt() -> list[tuple[Family, str]]:
    return [(family, name) for family in FAMILIES for name in family.programs if not (family.folder / name).exists()]


def build() -> None:
    """Build what is not there yet, saying so on stderr: about 12 minutes on two cores when nothing is cached."""
    if not unbuilt():
        return
    _check_go(max((family for family, _ in unbuilt()), key=lambda family: family.go))
    _BUILT.mkdir(exist_ok=True)
    with _alone():
        todo = unbuilt()
        for number, (family, name) in enumerate(todo, 1):
            _say(f"[{number}/{len(todo)}] building {name} {family.version} ...")
            started = time.monotonic()
            _build(family, name)
            _say(f"[{number}/{len(todo)}] built {name} in {time.monotonic() - started:.0f} s")
        _forget_other_pins()


def _check_go(family: Family) -> None:
    wanted = ".".join(map(str, family.go))
    how = (
        f"The rig builds Kubernetes, etcd, kwok and helm from source and needs Go {wanted} or newer.\n"
        "Get it from https://go.dev/dl/ (unpack it and put its bin/ on the PATH) or as your system's package, and run "
        "this again.\nNothing else needs Go: `make check` does not."
    )
    if not shutil.which("go"):
        raise MissingError(f"Go is not installed.\n{how}")
    # Asked inside the module, since a Go that may fetch newer ones of itself does so for the module's sake.
    said = subprocess.run(["go", "version"], cwd=family.directory, capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", said.stdout)
    if not found:
        raise MissingError(f"`go version` failed: {said.stderr.strip()}\n{how}")
    if (int(found[1]), int(found[2])) < family.go:
        raise MissingError(f"Go is too old: {said.stdout.strip()}.\n{how}")


def _build(family: Family, name: str) -> None:
    made = family.folder / f"{name}.new"
    command = ["go", "build", "-trimpath", "-ldflags", family.linked, "-o", str(made), family.programs[name]]
    # A workspace file above, or cgo with whatever C compiler is here, would make it another program.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    family.folder.mkdir(exist_ok=True)
    with subprocess.Popen(command, cwd=family.directory, env=environment) as running:
        minutes = 0
        while True:
            try:
                status = running.wait(60)
                break
            except subprocess.TimeoutExpired:
                minutes += 1
                _say(f"      still building {name}, {minutes} min")
    if status:
        raise MissingError(f"building {name} {family.version} failed; Go said why above")
    made.replace(family.folder / name)


@contextmanager
def _alone() -> Iterator[None]:
    """One build at a time in this checkout; the second finds everything built."""
    with (_BUILT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another build in this checkout ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_other_pins() -> None:
    current = {family.folder for family in FAMILIES}
    for folder in _BUILT.iterdir():
        if folder.is_dir() and folder not in current:
            shutil.rmtree(folder)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        build()
    except MissingError as missing:
        sys.exit(str(missing))
    except KeyboardInterrupt:
        sys.exit(130)
