"""``mmdeploy estimate`` as a person meets it: pages, documents, exit codes, and what it says of bad input."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from mmdeploy.__main__ import main
from tests.cli.program import ROOT, Done, environment, run, run_process
from tests.estimate.media import movie, png, sound, webp

QWEN = "Qwen/Qwen3-VL-32B-Instruct"
GEMMA = "google/gemma-4-31B-it"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(*args: str, **variables: str) -> Done:
    """Call the program on a terminal of 80 columns, unless ``COLUMNS`` says otherwise."""
    out, err, status = Terminal(), Terminal(), 0
    with (
        mock.patch.object(sys, "argv", ["mmdeploy", "estimate", *args]),
        mock.patch.dict(os.environ, environment({"COLUMNS": "80", "NO_COLOR": "1", **variables}), clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stopped:
            status = int(stopped.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


def estimate(*args: str | os.PathLike[str]) -> Done:
    return run("estimate", *args)


def answer(*args: str | os.PathLike[str], status: int = 0) -> dict[str, Any]:
    done = estimate(*args, "-o", "json")
    assert done.status == status, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schemaVersion"] == 1
    return document


PAGES = {
    "items": ["-m", QWEN, "--image", "1280x720", "--image", "3x4000x3000,url", "--image", "64x64",
              "--video", "640x360@24fps:10s,no-headers", "--audio", "30s", "--text-tokens", "200"],
    "common sizes of a model by tiles": ["-m", "llama-4"],
    "a model that counts at a fixed number": ["-m", "Gemma-4 (max_soft_tokens=140)", "--image", "1280x720",
                                              "--image", "300x200,webp", "--video", "1280x720@24fps:10s"],
    "grid": ["-m", QWEN, "--grid"],
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_pages_on_80_columns(name: str, snapshot: SnapshotAssertion) -> None:
    done = on_terminal(*PAGES[name])
    assert done.status == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout == snapshot


def test_traffic_on_80_columns(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    recorded = tmp_path / "t.jsonl"
    sizes = [(1280, 720, "inline"), (4032, 3024, "url"), (640, 480, "inline"), (64, 64, "inline")]
    lines = [json.dumps({"width": w, "height": h, "via": via}) for w, h, via in sizes * 25]
    recorded.write_text("\n".join([*lines, "nonsense", '{"messages": []}']))
    done = on_terminal("-m", QWEN, "--requests", str(recorded), "--suggest")
    assert done.status == 0, done.stderr
    assert done.stdout == snapshot


def test_colours_are_for_terminals() -> None:
    args = ("-m", QWEN, "--grid")
    assert "\x1b[" in on_terminal(*args, NO_COLOR="").stdout
    assert "\x1b[" not in on_terminal(*args).stdout
    assert "\x1b[" not in on_terminal(*args, NO_COLOR="", TERM="dumb").stdout
    assert "\x1b[" not in estimate(*args, "-o", "table").stdout
    assert "#" in on_terminal(*args).stdout  # marks stand in for colours


def test_the_issue_s_example() -> None:
    document = answer("--model", QWEN, "--image", "1280x720", "--image", "3x4000x3000",
                      "--video", "1280x720@24fps:10s", "--text-tokens", "7")  # fmt: skip
    rows = [(row["count"], row["router_tokens"], row["model_tokens"]) for row in document["items"]]
    assert rows == [(1, 900, 880), (3, 3 * 11718, 3 * 11750), (1, 9000, 8800), (1, 7, 7)]
    assert document["items"][0]["error_percent"] == pytest.approx(2.2727, abs=1e-4)
    assert document["total"]["router_tokens"] == sum(row[1] for row in rows)
    assert document["total"]["model_tokens"] == sum(row[2] for row in rows)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [(QWEN, 880), ("qwen3-vl", 880), ("QWEN3-VL", 880), ("Gemma-4 (max_soft_tokens=140)", 122), (GEMMA, 266),
     ("InternVL3/3.5 (max_dynamic_patch=12)", 2306)],
)  # fmt: skip
def test_models_go_by_many_names(model: str, tokens: int) -> None:
    assert answer("-m", model, "--image", "1280x720")["total"]["model_tokens"] == tokens


def test_every_form_says_the_same() -> None:
    args = ("-m", QWEN, "--image", "1280x720", "--image", "64x64,url")
    document = answer(*args)
    assert yaml.safe_load(estimate(*args, "-o", "yaml").stdout) == document
    rows = list(csv.DictReader(io.StringIO(estimate(*args, "-o", "csv").stdout)))
    assert [int(row["router_tokens"]) for row in rows] == [900, 900, 1800]
    assert [row["label"] for row in rows] == ["1280x720", "64x64,url", "total"]


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("1280x720", "rounds each side to whole cells of 32"),
        ("64x64", "below the model's 64-token floor"),
        ("8000x6000", "above the model's 16,384-token cap"),
        ("4000x3000,url", "URL: priced at the default 1280x720"),
        ("4000x3000,webp", "cannot read WebP: priced at the default 1280x720"),
    ],
)
def test_it_says_why(item: str, why: str) -> None:
    (row,) = answer("-m", QWEN, "--image", item)["items"]
    assert why in row["why"][0]


def test_a_picture_that_the_model_refuses_is_priced_but_not_counted() -> None:
    document = answer("-m", QWEN, "--image", "10000x10", "--image", "1280x720")
    assert (document["items"][0]["router_tokens"], document["items"][0]["model_tokens"]) == (97, None)
    assert "aspect ratio" in document["items"][0]["why"][0]
    assert document["total"]["items_without_model_tokens"] == 1
    assert document["total"]["error_percent"] == pytest.approx(2.2727, abs=1e-4)


def test_sounds() -> None:
    rows = answer("-m", "qwen3-omni", "--audio", "30s", "--audio", "30s,url", "--audio", "30s,128kbps")["items"]
    assert [row["router_tokens"] for row in rows] == [320016, 1, 160001]
    assert {row["model_tokens"] for row in rows} == {390}


def test_files_are_looked_at_and_a_broken_one_does_not_stop_the_others(tmp_path: Path) -> None:
    for name, data in {"a.png": png(1280, 720), "b.webp": webp(640, 480), "c.png": b"\x89PNG\r\n\x1a\n",
                       "d.mp4": movie(640, 360, 48, 1, 24), "e.wav": sound(1), "f.txt": b"words"}.items():  # fmt: skip
        (tmp_path / name).write_bytes(data)
    paths = [*sorted(tmp_path.iterdir()), tmp_path / "missing.png"]
    done = estimate("-m", QWEN, *paths, "-o", "json")
    assert done.status == 2
    assert len(done.stderr.splitlines()) == 3
    document = json.loads(done.stdout)
    assert [Path(each["file"]).name for each in document["problems"]] == ["c.png", "f.txt", "missing.png"]
    found = {Path(row["label"]).name: row for row in document["items"]}
    assert (found["a.png"]["router_tokens"], found["a.png"]["model_tokens"]) == (900, 880)
    assert (found["b.webp"]["router_tokens"], found["b.webp"]["model_tokens"]) == (900, 300)
    assert (found["d.mp4"]["router_tokens"], found["d.mp4"]["model_tokens"]) == (9000, 440)
    assert "450 with the x-llm-d-video-* headers" in found["d.mp4"]["why"]
    assert found["e.wav"]["model_tokens"] is None


VALUES = ROOT / "overlays" / "main" / "e-pd" / "gpu" / "vllm" / "gke" / "router" / "values.yaml"


def test_somebody_s_values_are_judged() -> None:
    assert estimate("-m", QWEN, "--values", VALUES).status == 0
    done = estimate("-m", GEMMA, "--values", VALUES, "--image", "1280x720", "-o", "json")
    assert done.status == 3
    document = json.loads(done.stdout)
    assert (document["items"][0]["router_tokens"], document["items"][0]["model_tokens"]) == (900, 266)
    assert document["pairing"]["within_tolerance"] is False
    assert "gives every picture about the same number of tokens" in done.stderr
    assert estimate("-m", GEMMA, "--values", VALUES, "--tolerance", "1e6").status == 0
    assert estimate("-m", QWEN, "--values", VALUES, "--tolerance", "1").status == 3


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml"])
def test_the_exit_status_does_not_depend_on_the_form(form: str) -> None:
    assert estimate("-m", GEMMA, "--values", VALUES, "-o", form).status == 3
    assert estimate("-m", QWEN, "--image", "1280x720", "-o", form).status == 0


def test_real_tokens_have_no_error(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("plugins: [{type: token-producer, parameters: {modelName: m}}]")
    document = answer("-m", QWEN, "--values", tmp_path / "p.yaml", "--image", "1280x720,url")
    assert document["estimator"]["precise"] is True
    assert document["items"][0]["router_tokens"] == 880
    assert document["pairing"] is None


def test_videos_before_v0_9() -> None:
    done = estimate("-m", QWEN, "--release", "v0.8", "--values", VALUES)
    assert done.status == 2
    assert "v0.10.0" in done.stderr
    (row,) = answer("-m", QWEN, "--release", "v0.8", "--video", "1280x720@24fps:10s")["items"]
    assert row["router_tokens"] == 25
    assert "count the bytes of a video's URL" in row["why"][0]


def test_the_grid_is_data_where_it_is_not_a_terminal() -> None:
    rows = list(csv.DictReader(io.StringIO(estimate("-m", QWEN, "--grid").stdout)))
    document = answer("-m", QWEN, "--grid")
    assert len(rows) == len(document["cells"]) == 99
    square = next(cell for cell in document["cells"] if cell["width_pixels"] == cell["height_pixels"] == 64)
    assert (square["router_tokens"], square["model_tokens"], square["error_percent"]) == (4, 64, -93.75)


def test_processor_files_and_arguments(tmp_path: Path) -> None:
    config = tmp_path / "preprocessor_config.json"
    config.write_text(json.dumps({"image_processor_type": "Qwen2VLImageProcessorFast", "max_pixels": 401408}))
    limited = answer("-m", QWEN, "--processor-config", config, "--image", "4000x3000")
    assert limited["items"][0]["model_tokens"] == 374
    assert answer("--processor-config", config, "--image", "64x64")["model"]["name"] == "Qwen2VLImageProcessor"
    kwargs = answer("-m", GEMMA, "--mm-processor-kwargs", '{"max_soft_tokens": 140}', "--image", "1280x720")
    assert kwargs["items"][0]["model_tokens"] == 122
    assert kwargs["items"][0]["router_tokens"] == 140


def test_stdin_is_read(tmp_path: Path) -> None:
    lines = b'{"width": 1280, "height": 720}\n' * 3
    done = run_process("estimate", "-m", QWEN, "--requests", "-", "-o", "json", stdin=lines)
    assert json.loads(done.stdout)["total"]["router_tokens"] == 2700
    done = run_process("estimate", "-m", GEMMA, "--values", "-", stdin=VALUES.read_bytes())
    assert done.status == 3


def test_traffic_as_data(tmp_path: Path) -> None:
    recorded = tmp_path / "t.jsonl"
    recorded.write_text('{"width": 1280, "height": 720}\n{"width": 64, "height": 64, "via": "url"}\nx\n')
    document = answer("-m", QWEN, "--requests", recorded, "--suggest")
    assert document["lines"] == {"read": 3, "requests": 0, "rejected": 0, "unreadable": 1,
                                 "problems": [{"line": 3, "problem": "not JSON: Expecting value"}]}  # fmt: skip
    assert document["items"]["unseen_by_router_percent"] == 50
    assert document["errors"]["mean_absolute_tokens"] == (20 + 836) / 2
    assert document["suggestion"]["mean_absolute_error_before_tokens"] == (20 + 836) / 2
    assert document["suggestion"]["mean_absolute_error_after_tokens"] == 0
    rows = dict(csv.reader(io.StringIO(estimate("-m", QWEN, "--requests", recorded, "-o", "csv").stdout)))
    assert rows["lines.unreadable"] == "1"
    assert (
        yaml.safe_load(estimate("-m", QWEN, "--requests", recorded, "-o", "yaml").stdout)["kind"] == "EstimateTraffic"
    )


def test_traffic_of_which_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("x\ny")
    done = estimate("-m", QWEN, "--requests", tmp_path / "t.jsonl")
    assert done.status == 2
    assert "2 unreadable" in done.stdout
    assert "no line of it can be read" in done.stderr


BAD = {
    "no model": ["--image", "1x1"],
    "an unknown model": ["-m", "qwen4-vl", "--image", "1x1"],
    "an unknown served model": ["-m", "Qwen/Qwen3-VL-32B-Instrct"],
    "an image without a size": ["-m", QWEN, "--image", "big"],
    "an image of nothing": ["-m", QWEN, "--image", "0x720"],
    "an image with an unknown word": ["-m", QWEN, "--image", "1280x720,jxl"],
    "too many digits": ["-m", QWEN, "--image", "9" * 5000 + "x1"],
    "a video without a size": ["-m", QWEN, "--video", "24fps:10s"],
    "a video of no length": ["-m", QWEN, "--video", "1280x720@24fps:0s"],
    "a sound without a length": ["-m", QWEN, "--audio", "long"],
    "no text": ["-m", QWEN, "--text-tokens", "-1"],
    "an unknown release": ["-m", QWEN, "--release", "v9"],
    "a refused estimate": ["-m", QWEN, "--estimator", "{image: {mode: area}}"],
    "an estimate that is none": ["-m", QWEN, "--estimator", "{image: "],
    "a missing estimate": ["-m", QWEN, "--estimator", "none.yaml"],
    "missing values": ["-m", QWEN, "--values", "none.yaml"],
    "values of something else": ["-m", QWEN, "--values", str(ROOT / "pyproject.toml")],
    "two estimators": ["-m", QWEN, "--values", "a", "--estimator", "b"],
    "a missing processor file": ["-m", QWEN, "--processor-config", "none.json"],
    "arguments that are no JSON": ["-m", QWEN, "--mm-processor-kwargs", "{"],
    "arguments that the engine refuses": ["-m", GEMMA, "--mm-processor-kwargs", '{"max_soft_tokens": 3}'],
    "missing traffic": ["-m", QWEN, "--requests", "none.jsonl"],
    "a directory as traffic": ["-m", QWEN, "--requests", "."],
    "a suggestion from nothing": ["-m", QWEN, "--suggest"],
    "two questions": ["-m", QWEN, "--grid", "--image", "1x1"],
    "a tolerance of nothing": ["-m", QWEN, "--tolerance", "20"],
    "a tolerance below nothing": ["-m", QWEN, "--values", "a", "--tolerance", "-1"],
    "a tolerance that is no number": ["-m", QWEN, "--values", "a", "--tolerance", "nan"],
    "stdin twice": ["-m", QWEN, "--values", "-", "--requests", "-"],
    "a grid of real tokens": ["-m", QWEN, "--grid", "--values", "precise.yaml"],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("precise.yaml").write_text("plugins: [{type: token-producer, parameters: {modelName: m}}]")
    done = estimate(*BAD[name])
    assert done.status == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
