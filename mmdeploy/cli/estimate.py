"""``mmdeploy estimate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.estimator.items import Asked
    from mmdeploy.estimator.producers import Producer
    from mmdeploy.estimator.question import Question
    from mmdeploy.estimator.suggestion import Suggestion

EXAMPLES = """Examples:

mmdeploy estimate -m Qwen/Qwen3-VL-32B-Instruct --image 1280x720 --image 3x4000x3000,url

mmdeploy estimate -m "Gemma-4 (max_soft_tokens=140)" --video 1280x720@24fps:10s --text-tokens 200

mmdeploy estimate -m Qwen/Qwen3-VL-32B-Instruct --grid

With files of your own (estimate -m MODEL ...): photo.jpg scan.webp clip.mp4 · --values values.yaml ·
--requests traffic.jsonl --suggest -o yaml > estimate.yaml, which render --estimator estimate.yaml takes.
"""


class Output(StrEnum):
    """Forms of ``-o``."""

    table = "table"
    json = "json"
    csv = "csv"
    yaml = "yaml"


def estimate(
    files: Annotated[
        list[str] | None, typer.Argument(help="Pictures, MP4 and MOV videos, WAV sounds.", metavar="[FILE]...")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Served model, family, or a family's setting.", metavar="NAME"),
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option("--image", help="Picture (inline PNG).", metavar="[Nx]WxH[,url|FORMAT]")
    ] = None,
    video: Annotated[
        list[str] | None, typer.Option("--video", help="Video.", metavar="[Nx]WxH[@FPSfps][:SECs][,no-headers]")
    ] = None,
    audio: Annotated[
        list[str] | None, typer.Option("--audio", help="Sound (16 kHz WAV).", metavar="[Nx]SECs[,url|NNkbps]")
    ] = None,
    text_tokens: Annotated[
        int | None, typer.Option("--text-tokens", help="Tokens of text beside them.", metavar="N")
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option("--estimator", help="estimate: block to price by, as a file or inline.", metavar="FILE|YAML"),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option("--values", help="Take it from Helm values, a rendered chart or a picker config.", metavar="FILE"),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Error in % that --values/--estimator may have (20).", metavar="PERCENT"),
    ] = None,
    release: Annotated[
        str | None, typer.Option("--release", help="llm-d release: v0.8, v0.9 or main.", metavar="WORD")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Error over sizes and aspect ratios.")] = False,
    requests: Annotated[
        str | None,
        typer.Option("--requests", help="Traffic: a request or a size a line; - reads stdin.", metavar="FILE"),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="With --requests: the block that fits this traffic best.")
    ] = False,
    processor_config: Annotated[
        str | None, typer.Option("--processor-config", help="The model's preprocessor_config.json.", metavar="FILE")
    ] = None,
    mm_processor_kwargs: Annotated[
        str | None, typer.Option("--mm-processor-kwargs", help="What the engine is started with.", metavar="JSON")
    ] = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="What stdout gets.")] = None,
    blueprints_dir: Annotated[
        Path | None,
        typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS"),
    ] = None,
) -> None:
    """Say what the router charges for pictures, videos and sounds, what the model takes, and why they differ.

    Exits with 3 when an estimator that you bring is off by more than --tolerance over common sizes.
    """
    from mmdeploy.cli import blueprints

    _check_together(
        items=bool(files or image or video or audio or text_tokens is not None),
        grid=grid,
        requests=requests,
        suggest=suggest,
        sources=[name for name, given in (("--estimator", estimator), ("--values", values)) if given is not None],
        stdin=[name for name, given in (("--values", values), ("--requests", requests)) if given == "-"],
        tolerance=tolerance,
    )
    catalog = blueprints.load(blueprints_dir)
    producer = _producer(estimator, values)
    question = _question(catalog, model, processor_config, mm_processor_kwargs, release, producer, tolerance)
    _say_remarks(question)
    broken = 0
    if requests is not None:
        _print_traffic(question, requests, suggest, output)
    elif grid:
        _print_grid(question, output)
    else:
        asked, problems = _asked(files or (), image or (), video or (), audio or (), text_tokens)
        broken = len(problems)
        _print_items(question, asked, problems, output)
    if broken:
        raise typer.Exit(2)
    question.check()


def _check_together(
    *,
    items: bool,
    grid: bool,
    requests: str | None,
    suggest: bool,
    sources: Sequence[str],
    stdin: Sequence[str],
    tolerance: float | None,
) -> None:
    """Refuse options that say different things. Raises `UsageError`."""
    from mmdeploy.errors import UsageError

    if len(sources) > 1:
        raise UsageError("the estimator can come from one place only", origin=" and ".join(sources))
    if len(stdin) > 1:
        raise UsageError("only one of them can read stdin", origin=" and ".join(stdin))
    if sum((items, grid, requests is not None)) > 1:
        raise UsageError("give items, or --grid, or --requests: each is an answer of its own", origin="estimate")
    if suggest and requests is None:
        raise UsageError("works from recorded traffic", origin="--suggest", next_step="add --requests FILE")
    if tolerance is not None and not 0 <= tolerance < float("inf"):
        raise UsageError(f"{tolerance:g} is no percentage", origin="--tolerance")
    if tolerance is not None and not sources:
        raise UsageError("judges an estimator that you bring", origin="--tolerance", next_step="add --values FILE")


def _producer(estimator: str | None, values: str | None) -> Producer | None:
    from mmdeploy import documents
    from mmdeploy.estimator import producers

    if values is not None:
        text = documents.read_stdin() if values == "-" else documents.read_text(Path(values))
        return producers.from_text(text, "<stdin>" if values == "-" else values)
    if estimator is not None:
        return producers.from_estimate(estimator)
    return None


def _question(
    catalog: Catalog,
    model: str | None,
    processor_config: str | None,
    mm_processor_kwargs: str | None,
    release: str | None,
    producer: Producer | None,
    tolerance: float | None,
) -> Question:
    from mmdeploy.documents import read_text
    from mmdeploy.estimator.question import ask, processor_file

    kwargs = None
    if mm_processor_kwargs is not None:
        from mmdeploy.inputs import json_mapping

        kwargs = json_mapping(mm_processor_kwargs, "--mm-processor-kwargs")
    config = processor_config and processor_file(read_text(Path(processor_config)), processor_config)
    return ask(
        catalog,
        model=model,
        processor_config=config or None,
        processor_kwargs=kwargs,
        release=release,
        producer=producer,
        tolerance_percent=tolerance,
    )


def _asked(
    files: Sequence[str],
    images: Sequence[str],
    videos: Sequence[str],
    audios: Sequence[str],
    text_tokens: int | None,
) -> tuple[list[Asked], list[dict[str, str]]]:
    """Items in the order of the help, and files that could not be read, told of on stderr."""
    from mmdeploy.errors import UsageError
    from mmdeploy.estimator import items
    from mmdeploy.estimator.pairing import COMMON_SIZES
    from mmdeploy.report import problems

    asked = [items.image(each) for each in images] + [items.video(each) for each in videos]
    asked += [items.audio(each) for each in audios]
    broken = []
    for path in files:
        try:
            asked.append(items.file(path))
        except UsageError as problem:
            broken.append({"file": path, "problem": problem.found})
            print(problems.error(problem), file=sys.stderr)
    if text_tokens is not None:
        asked.append(items.text(text_tokens))
    if not asked and not broken:
        asked = [items.of_size(width, height) for width, height in COMMON_SIZES]
    return asked, broken


def _say_remarks(question: Question) -> None:
    from mmdeploy.report import problems

    for text in question.producer.remarks:
        print(problems.warning(text), file=sys.stderr)


def _print_items(
    question: Question, asked: Sequence[Asked], problems: Sequence[dict[str, str]], output: Output | None
) -> None:
    from mmdeploy.estimator.answers import items_answer
    from mmdeploy.estimator.costs import cost
    from mmdeploy.report import estimates

    answer = items_answer(question, [cost(each, question.family, question.estimator) for each in asked], problems)
    if output in (None, Output.table):
        print(estimates.items_page(answer), end="")
    else:
        _print(answer, [*answer["items"], {"label": "total", **answer["total"]}], output)


def _print_grid(question: Question, output: Output | None) -> None:
    from mmdeploy.errors import UsageError
    from mmdeploy.estimator.answers import grid_answer
    from mmdeploy.estimator.grid import grid
    from mmdeploy.report import grids

    if question.estimator is None:
        raise UsageError("under precise routing the router counts real tokens: there is no error", origin="--grid")
    answer = grid_answer(question, grid(question.family, question.estimator))
    if output is Output.table or (output is None and sys.stdout.isatty()):
        print(grids.page(answer), end="")
    else:
        _print(answer, answer["cells"], output or Output.csv)


def _print_traffic(question: Question, requests: str, suggest: bool, output: Output | None) -> None:
    from mmdeploy.errors import UsageError
    from mmdeploy.estimator.answers import traffic_answer
    from mmdeploy.estimator.sample import Samples
    from mmdeploy.estimator.traffic import Traffic
    from mmdeploy.report import estimates

    traffic = Traffic(question.family, question.estimator, Samples() if suggest else None)
    with _opened(requests) as stream:
        traffic.read(stream)
    answer = traffic_answer(question, traffic.tally, _suggestion(question, traffic.samples))
    if output in (None, Output.table):
        print(estimates.traffic_page(answer), end="")
    elif output is Output.yaml and suggest:
        print(estimates.suggestion_page(answer["suggestion"]), end="")
    else:
        _print(answer, estimates.traffic_rows(answer), output)
    if traffic.tally.unreadable and traffic.tally.unreadable == traffic.tally.lines:
        raise UsageError(
            "no line of it can be read",
            origin="<stdin>" if requests == "-" else requests,
            next_step="write a request or a size a line, as JSON: guides/estimating.md lists the fields",
        )


def _suggestion(question: Question, samples: Any) -> Suggestion | None:
    if samples is None:
        return None
    from mmdeploy.estimator.suggestion import suggest

    return suggest(samples, question.family, question.estimator, video_supported=question.video_supported)


def _opened(path: str) -> BinaryIO:
    from mmdeploy.errors import UsageError

    if path == "-":
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", origin=path) from None


def _print(answer: dict[str, Any], rows: Sequence[dict[str, Any]], output: Output | None) -> None:
    from mmdeploy.report import documents

    forms = {Output.json: documents.as_json, Output.yaml: documents.as_yaml}
    print(documents.as_csv(rows) if output is Output.csv or output is None else forms[output](answer), end="")
