"""A bundle meets a directory: all of it is written or nothing, and what others wrote is theirs."""

from __future__ import annotations

import builtins
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.cli import blueprints
from mmdeploy.errors import DifferencesError, UsageError
from mmdeploy.render import disk
from mmdeploy.render.bundle import Bundle
from mmdeploy.render.bundle import render as render_bundle
from mmdeploy.render.resolve import Resolver
from mmdeploy.spec import DeploymentSpec
from tests.cli.program import ROOT, Done, environment, run

MONITORING = "monitoring/decode-podmonitor.yaml"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def render(directory: Path, *args: str) -> Done:
    return run("render", *args, "-d", directory)


def tree(root: Path) -> dict[str, bytes]:
    """Every file under ``root``; directories that hold nothing count, too."""
    found: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file():
            found[name] = path.read_bytes()
        elif path.is_dir() and not any(path.iterdir()):
            found[name + "/"] = b""
    return found


def bundle_of(**said: Any) -> Bundle:
    catalog = blueprints.load()
    return render_bundle(catalog, Resolver(catalog).resolve(DeploymentSpec.model_validate(said)))


# --- writing


def test_a_new_directory_holds_the_whole_bundle(out: Path) -> None:
    done = render(out / "deep" / "er", "--monitoring")
    assert done.status == 0
    assert set(tree(out / "deep" / "er")) == {
        "README.md",
        "mmdeploy.yaml",
        "mmdeploy.sum",
        "router/values.yaml",
        "modelserver/kustomization.yaml",
        "modelserver/serviceaccount.yaml",
        "modelserver/decode-deployment.yaml",
        "monitoring/kustomization.yaml",
        MONITORING,
    }


def test_the_checksums_are_those_of_sha256sum(out: Path) -> None:
    render(out)
    done = subprocess.run(["sha256sum", "--check", "--strict", "mmdeploy.sum"], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == len(tree(out)) - 1


def test_writing_again_changes_nothing(out: Path) -> None:
    render(out, "-t", "e-pd")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    done = render(out, "-t", "e-pd")
    assert done.status == 0
    assert "already current" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


def test_writing_again_from_its_own_spec_changes_nothing(out: Path) -> None:
    render(out, "-t", "e-pd", "--set", "encode.replicas=5")
    before = tree(out)
    done = render(out, "-f", str(out / "mmdeploy.yaml"))
    assert "already current" in done.stdout
    assert tree(out) == before


def test_another_deployment_replaces_the_files_and_removes_what_is_gone(out: Path) -> None:
    render(out, "-t", "e-pd", "--workload", "Deployment", "--monitoring")
    assert (out / "modelserver/encode-deployment.yaml").exists()
    done = render(out, "-t", "aggregation")
    assert done.status == 0
    assert "remove modelserver/encode-deployment.yaml" in done.stdout
    fresh = out.with_name("fresh")
    render(fresh, "-t", "aggregation")
    assert tree(out) == tree(fresh), "nothing of the old bundle is left, not even an empty directory"


def test_switching_monitoring_off_removes_its_directory(out: Path) -> None:
    render(out, "--monitoring")
    done = render(out)
    assert done.status == 0
    assert not (out / "monitoring").exists()


def test_line_ends_are_the_same_everywhere(out: Path) -> None:
    render(out)
    assert all(b"\r" not in content and content.endswith(b"\n") for content in tree(out).values())


# --- what others wrote


@pytest.mark.parametrize("name", ["README.md", "mmdeploy.yaml", "router/values.yaml", "modelserver/kustomization.yaml"])
def test_a_hand_edited_file_is_not_overwritten(out: Path, name: str) -> None:
    render(out, "-t", "e-pd")
    (out / name).write_text((out / name).read_text() + "# mine\n")
    before = tree(out)
    done = render(out, "-t", "e-p-d")
    assert done.status == 4
    assert done.stdout == ""
    assert name in done.stderr
    assert "--force" in done.stderr
    assert tree(out) == before


def test_every_edited_file_is_named(out: Path) -> None:
    render(out)
    for name in ("README.md", "router/values.yaml"):
        (out / name).write_text("mine\n")
    stderr = render(out).stderr
    assert "README.md: edited by hand" in stderr
    assert "router/values.yaml: edited by hand" in stderr
    assert "modelserver" not in stderr


def test_an_edit_that_is_what_would_be_written_is_no_edit(out: Path) -> None:
    """Somebody who applied the change by hand already is not asked to force it."""
    render(out)
    other = out.with_name("other")
    render(other, "--set", "decode.replicas=3")
    name = "modelserver/decode-deployment.yaml"
    (out / name).write_bytes((other / name).read_bytes())
    assert render(out, "--set", "decode.replicas=3").status == 0


def test_force_overwrites(out: Path) -> None:
    render(out)
    good = tree(out)
    (out / "README.md").write_text("mine\n")
    assert render(out, "--force").status == 0
    assert tree(out) == good


def test_a_file_that_was_deleted_comes_back_without_force(out: Path) -> None:
    render(out)
    good = tree(out)
    (out / "README.md").unlink()
    assert render(out).status == 0
    assert tree(out) == good


def test_a_file_that_is_gone_from_the_bundle_stays_when_it_was_edited(out: Path) -> None:
    render(out, "--monitoring")
    (out / MONITORING).write_text("mine\n")
    before = tree(out)
    done = render(out)
    assert done.status == 4
    assert MONITORING in done.stderr
    assert tree(out) == before


def test_files_of_others_survive(out: Path) -> None:
    render(out, "-t", "e-pd", "--monitoring")
    mine = {
        "notes.txt": "a",
        "modelserver/patch.yaml": "b",
        "monitoring/mine.yaml": "c",
        "overlay/kustomization.yaml": "d",
    }
    for name, text in mine.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text)
    for args in (("-t", "e-p-d"), ("-t", "aggregation", "--force")):
        assert render(out, *args).status == 0
        assert {name: (out / name).read_text() for name in mine} == mine


def test_a_foreign_file_in_the_way_is_refused(out: Path) -> None:
    out.mkdir()
    (out / "README.md").write_text("# My project\n")
    done = render(out)
    assert done.status == 4
    assert "README.md" in done.stderr
    assert tree(out) == {"README.md": b"# My project\n"}


def test_a_foreign_file_that_is_no_text_is_refused(out: Path) -> None:
    out.mkdir()
    (out / "README.md").write_bytes(b"\xff\xfe\x00")
    assert render(out).status == 4
    assert tree(out) == {"README.md": b"\xff\xfe\x00"}


def test_a_repository_with_its_own_line_ends_is_current(out: Path) -> None:
    """git may hand a Windows user CRLF; then every file differs, and saying so beats calling it edited by hand."""
    render(out)
    (out / "README.md").write_bytes((out / "README.md").read_bytes().replace(b"\n", b"\r\n"))
    assert render(out).status == 4


# --- --check


def test_check_of_a_current_directory(out: Path) -> None:
    render(out, "-t", "e-pd")
    before = tree(out)
    done = render(out, "-t", "e-pd", "--check")
    assert (done.status, done.stdout) == (0, "")
    assert f"{out} is current" in done.stderr
    assert tree(out) == before


def test_check_shows_a_diff_that_patch_can_apply(out: Path) -> None:
    render(out, "-t", "e-pd", "--monitoring")
    before = tree(out)
    done = render(out, "-t", "e-pd", "--set", "encode.replicas=3", "--check")
    assert done.status == 4
    assert tree(out) == before
    assert "--- a/mmdeploy.yaml\n+++ b/mmdeploy.yaml\n@@ " in done.stdout
    assert "\n-  replicas: 2\n+  replicas: 3\n" in done.stdout
    assert "next: mmdeploy render -t e-pd --set encode.replicas=3 -d " in done.stderr
    patched = subprocess.run(["patch", "-p1", "-s"], cwd=out, input=done.stdout, text=True, capture_output=True)
    assert patched.returncode == 0, patched.stdout
    fresh = out.with_name("fresh")
    render(fresh, "-t", "e-pd", "--set", "encode.replicas=3")
    assert tree(out) == tree(fresh), "the patch makes what a render would have made"


def test_check_of_a_directory_that_is_not_there(out: Path) -> None:
    done = render(out, "--check")
    assert done.status == 4
    assert "--- /dev/null\n+++ b/README.md\n" in done.stdout
    assert not out.exists()


def test_check_sees_edited_missing_and_superfluous_files(out: Path) -> None:
    render(out, "--monitoring")
    (out / "README.md").write_text("mine\n")
    (out / "router/values.yaml").unlink()
    done = render(out, "--check")
    assert done.status == 4
    for part in ("--- a/README.md\n", "+++ b/router/values.yaml\n", f"--- a/{MONITORING}\n+++ /dev/null\n"):
        assert part in done.stdout


def test_check_and_force_write_nothing(out: Path) -> None:
    render(out)
    (out / "README.md").write_text("mine\n")
    assert render(out, "--check", "--force").status == 4
    assert (out / "README.md").read_text() == "mine\n"


# --- failures halfway


def failing(monkeypatch: pytest.MonkeyPatch, name: str, at: int, problem: OSError) -> list[str]:
    """Make the ``at``-th call of ``os.<name>`` fail; the list collects what it was called with."""
    real: Callable[..., Any] = getattr(os, name)
    calls: list[str] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(str(args[0]))
        if len(calls) == at:
            raise problem
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize("at", [1, 2, 4, 6])
def test_a_disk_error_while_renaming_leaves_the_old_bundle_whole(
    out: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    render(out, "-t", "e-pd")
    before = tree(out)
    calls = failing(monkeypatch, "replace", at, OSError(errno.EIO, "Input/output error", str(out)))
    with pytest.raises(UsageError) as refused:
        disk.write(bundle_of(topology="e-p-d"), out)
    assert len(calls) >= at, "the failure happened"
    assert "Input/output error" in refused.value.found
    assert tree(out) == before


def test_a_full_disk_leaves_the_old_bundle_whole(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(out, "-t", "e-pd")
    before = tree(out)
    real = builtins.open
    opened: list[str] = []

    def write_text(path: Path, text: str, **kwargs: Any) -> int:
        opened.append(str(path))
        with real(path, "w") as file:
            file.write(text[: len(text) // 2])
        if len(opened) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        with real(path, "w") as file:
            return file.write(text)

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(UsageError, match="No space left on device"):
        disk.write(bundle_of(topology="e-p-d"), out)
    assert len(opened) == 3
    assert tree(out) == before, "no temporary file is left"


def test_an_error_while_removing_is_told(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(out, "--monitoring")
    before = tree(out)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        disk.write(bundle_of(), out)
    monkeypatch.undo()
    assert tree(out) == before


def test_a_directory_in_the_way_of_a_file(out: Path) -> None:
    (out / "router/values.yaml").mkdir(parents=True)
    (out / "router/values.yaml/mine.txt").write_text("mine")
    for args in ((), ("--force",)):
        done = render(out, *args)
        assert done.status in (2, 4)
        assert "Traceback" not in done.stderr
        assert "values.yaml" in done.stderr
        assert tree(out) == {"router/values.yaml/mine.txt": b"mine"}


def test_a_file_in_the_way_of_a_directory(out: Path) -> None:
    out.mkdir()
    (out / "router").write_text("mine")
    for args in ((), ("--force",)):
        done = render(out, *args)
        assert done.status in (2, 4)
        assert "Traceback" not in done.stderr
        assert "router" in done.stderr
        assert tree(out) == {"router": b"mine"}


def test_a_file_where_the_directory_should_be(out: Path) -> None:
    out.write_text("mine")
    done = render(out)
    assert done.status in (2, 4)
    assert "Traceback" not in done.stderr
    assert str(out) in done.stderr
    assert out.read_text() == "mine"


def test_check_of_a_directory_in_the_way(out: Path) -> None:
    (out / "README.md").mkdir(parents=True)
    done = render(out, "--check")
    assert done.status in (2, 4)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory(out: Path) -> None:
    out.mkdir(mode=0o555)
    done = render(out)
    assert done.status == 2
    assert "Permission denied" in done.stderr
    assert "next: " in done.stderr


def test_a_read_only_directory_whoever_asks(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out.mkdir()

    def refuse(path: Path, *args: Any, **kwargs: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_text", refuse)
    done = render(out)
    assert done.status == 2
    assert done.stderr.splitlines()[-2].startswith(f"error: {out}: cannot write ")
    assert "Permission denied" in done.stderr
    assert "next: choose another directory with -d" in done.stderr
    assert tree(out) == {}, "no empty directories are left"


# --- links and doctored lists


def test_a_link_to_a_directory_is_followed(out: Path) -> None:
    real = out.with_name("real")
    real.mkdir()
    out.symlink_to(real, target_is_directory=True)
    assert render(out).status == 0
    assert out.is_symlink()
    assert (real / "mmdeploy.yaml").is_file()
    assert render(out, "--check").status == 0


def test_a_link_that_leads_nowhere(out: Path) -> None:
    out.symlink_to(out.with_name("nowhere"))
    done = render(out)
    assert "Traceback" not in done.stderr
    assert done.status in (0, 2)


def test_a_linked_file_is_not_written_through(out: Path) -> None:
    """Somebody's link to a file elsewhere: that file is not the bundle's to change."""
    elsewhere = out.with_name("elsewhere.md")
    elsewhere.write_text("mine\n")
    out.mkdir()
    (out / "README.md").symlink_to(elsewhere)
    assert render(out).status == 4
    assert render(out, "--force").status == 0
    assert elsewhere.read_text() == "mine\n"


@pytest.mark.parametrize("path", ["../victim.txt", "modelserver/../../victim.txt", "{absolute}", "./../victim.txt"])
def test_a_doctored_checksum_list_reaches_nothing_outside(out: Path, path: str) -> None:
    victim = out.with_name("victim.txt")
    victim.write_text("precious\n")
    render(out)
    line = f"{disk.digest('precious' + chr(10))}  {path.format(absolute=victim)}\n"
    (out / "mmdeploy.sum").write_text((out / "mmdeploy.sum").read_text() + line)
    for args in ((), ("--force",), ("--check",)):
        render(out, *args)
        assert victim.read_text() == "precious\n"


def test_a_doctored_checksum_list_cannot_take_a_directory(out: Path) -> None:
    render(out)
    (out / "mine").mkdir()
    (out / "mmdeploy.sum").write_text((out / "mmdeploy.sum").read_text() + f"{'0' * 64}  mine\n")
    done = render(out, "--force")
    assert "Traceback" not in done.stderr
    assert (out / "mine").is_dir()


def test_a_link_out_of_the_bundle_is_not_followed_to_remove(out: Path) -> None:
    """A checksum list may name a path that leads out over a link; what is there was never the bundle's."""
    outside = out.with_name("outside")
    outside.mkdir()
    (outside / "victim.txt").write_text("precious\n")
    render(out)
    (out / "link").symlink_to(outside, target_is_directory=True)
    line = f"{disk.digest('precious' + chr(10))}  link/victim.txt\n"
    (out / "mmdeploy.sum").write_text((out / "mmdeploy.sum").read_text() + line)
    render(out)
    assert (outside / "victim.txt").read_text() == "precious\n"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"x" * 100_000, b"abc  README.md\n", b"\n\n"])
def test_a_broken_checksum_list_makes_files_look_edited_not_lost(out: Path, content: bytes) -> None:
    render(out)
    (out / "mmdeploy.sum").write_bytes(content)
    (out / "README.md").write_text("mine\n")
    done = render(out)
    assert done.status == 4
    assert "Traceback" not in done.stderr
    assert (out / "README.md").read_text() == "mine\n"


# --- interrupted


@pytest.mark.parametrize("after", [0.0, 0.1, 0.3])
def test_ctrl_c_leaves_whole_bundles_only(out: Path, after: float) -> None:
    """`render --all` writes many bundles; each is there or not, and none is half written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mmdeploy", "render", "--all", "-d", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"PYTHONPATH": str(ROOT)}),
    )
    deadline = time.monotonic() + 30
    while not out.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    # It may have been done before the signal came, or be so near its end that Python dies of it by itself.
    assert process.returncode in (0, 130, -signal.SIGINT)
    assert "Traceback" not in stderr
    assert not list(out.rglob("*mmdeploy-tmp*"))
    for specs in out.rglob("mmdeploy.yaml"):
        bundle = specs.parent
        done = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "mmdeploy.sum"], cwd=bundle, check=False)
        assert done.returncode == 0, f"{bundle} is not whole"
    for kustomization in out.rglob("kustomization.yaml"):
        assert (kustomization.parent.parent / "mmdeploy.sum").is_file()


def test_ctrl_c_while_renaming_leaves_the_old_bundle_whole(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(out, "-t", "e-pd")
    before = tree(out)
    real = os.replace
    calls: list[str] = []

    def interrupted(source: str, target: str) -> None:
        calls.append(str(target))
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.write(bundle_of(topology="e-p-d"), out)
    after = tree(out)
    monkeypatch.undo()
    fresh = out.with_name("fresh")
    render(fresh, "-t", "e-p-d")
    assert after in (before, tree(fresh)), "the old bundle or the new one, nothing between"


# --- as a library


def test_changes_say_what_a_write_would_do(out: Path) -> None:
    bundle = bundle_of(topology="e-pd")
    assert {change.verb for change in disk.changes(bundle, out)} == {"create"}
    assert [change.path for change in disk.write(bundle, out)] == [*bundle.files, "mmdeploy.sum"]
    assert disk.changes(bundle, out) == []
    (out / "README.md").write_text("mine\n")
    (change,) = disk.changes(bundle, out)
    assert (change.path, change.verb, change.edited) == ("README.md", "update", True)
    with pytest.raises(DifferencesError) as refused:
        disk.write(bundle, out)
    assert refused.value.exit_code == 4
    assert refused.value.next_step
