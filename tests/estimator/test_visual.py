"""True image counts: the truth file, values beside it, and what must hold for every size."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmdeploy.catalog.families import Family, find, load_families
from mmdeploy.errors import UsageError
from mmdeploy.estimator.visual import image_tokens

REPOSITORY = Path(__file__).parents[2]
TRUTH = REPOSITORY.parent / "shared" / "facts" / "visual-token-truth.csv"
FAMILIES = load_families(REPOSITORY / "blueprints")
SETTINGS = [setting for family in FAMILIES.values() for setting in family.settings]

# (setting, width, height, tokens), from the processors themselves (transformers 5.24.0) or the engine's own functions
# (vLLM 0.32.0), run on sizes that lie on an edge: of rounding, of a limit, of two equally good grids.
KNOWN = [
    ("Qwen2.5-VL", 1280, 720, 1196),
    ("Qwen2.5-VL", 20, 2000, 71),
    ("Qwen2.5-VL", 8000, 6000, 16170),
    ("Qwen3-VL", 64, 64, 64),  # the 64-token floor
    ("Qwen3-VL", 1280, 720, 880),  # 22.5 rows are rounded to the even 22
    ("Qwen3-VL", 2550, 3300, 8240),
    ("Qwen3-VL", 8000, 6000, 16170),  # the 16,384-token cap, both sides floored
    ("Qwen3-VL", 20, 2000, 80),
    ("Qwen3-VL", 1, 200, 114),  # the most extreme shape that is not refused
    ("Qwen3-Omni", 64, 64, 4),
    ("GLM-4.5V", 13, 400, 31),
    ("GLM-4.5V", 4000, 3000, 6030),
    ("Gemma-3", 1, 12000, 260),
    ("Gemma-3 (pan&scan)", 1000, 256, 1040),  # three extra views
    ("Gemma-4 (max_soft_tokens=280)", 1280, 720, 266),
    ("Gemma-4 (max_soft_tokens=280)", 2000, 400, 261),
    ("Gemma-4 (max_soft_tokens=280)", 12000, 1, 282),  # one row, as long as the budget
    ("Gemma-4 (max_soft_tokens=70)", 3, 900, 72),
    ("Kimi-VL-A3B-Instruct", 1280, 720, 1075),
    ("Kimi-K2.5", 12000, 14, 256),  # the limit of 512 patches along a side
    ("Pixtral-12B", 1025, 1024, 4160),
    ("Mistral-Small-3.1/3.2", 1541, 1540, 3080),
    ("Llama-4", 336, 336, 147),
    ("Llama-4", 337, 336, 437),
    ("InternVL3/3.5 (max_dynamic_patch=12)", 900, 400, 770),  # 2:1 and 5:2 are equally near
    ("InternVL3/3.5 (max_dynamic_patch=12)", 2250, 1000, 2818),  # ... and a large picture gets the larger grid
    ("InternVL3/3.5 (max_dynamic_patch=12)", 12000, 1, 3330),
    ("LLaVA-1.5", 5, 5, 576),
    ("LLaVA-NeXT (1.6)", 12000, 1, 576),
    ("LLaVA-OneVision", 1170, 2532, 7393),
    ("Phi-4-multimodal", 4000, 3000, 3393),
    ("Molmo2", 112, 50, 392),
    ("Molmo-7B", 112, 112, 316),
    ("MiniCPM-V-4.6", 4000, 1000, 610),
    ("MiniCPM-V 2.6/4.5", 448, 449, 199),
    ("DeepSeek-VL2 (<=2 images)", 4000, 3000, 2017),
    ("DeepSeek-VL2 (>2 images)", 4000, 3000, 421),
    ("DeepSeek-OCR", 640, 641, 693),
    ("DeepSeek-OCR-2", 768, 768, 257),
]


@pytest.mark.truth
def test_every_row_of_the_truth_file() -> None:
    if not TRUTH.exists():
        pytest.skip("visual-token-truth.csv is not beside this checkout")
    with TRUTH.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SETTINGS) * 6
    wrong = {}
    for row in rows:
        counted = image_tokens(find(FAMILIES, row["model"]), int(row["width"]), int(row["height"]))
        if counted != int(row["true_tokens"]):
            wrong[row["model"], row["width"], row["height"]] = counted, row["true_tokens"]
    assert not wrong


@pytest.mark.parametrize(("setting", "width", "height", "tokens"), KNOWN)
def test_known_counts(setting: str, width: int, height: int, tokens: int) -> None:
    assert image_tokens(find(FAMILIES, setting), width, height) == tokens


side = st.integers(1, 12000)


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=60, deadline=None)
@given(width=side, height=side)
@example(1, 1)
@example(1, 12000)
@example(12000, 1)
@example(12000, 12000)
@example(112, 112)
@example(60, 12000)
def test_every_size_costs_a_token_or_is_refused_for_its_shape(setting: str, width: int, height: int) -> None:
    family = find(FAMILIES, setting)
    refuses = family.algorithm in ("area", "frame-area") and max(width, height) / min(width, height) > 200
    if refuses:
        with pytest.raises(UsageError, match="aspect ratio"):
            image_tokens(family, width, height)
    else:
        tokens = image_tokens(family, width, height)
        assert isinstance(tokens, int)
        assert tokens >= 1


@given(width=side, height=side)
def test_gemma_4_never_exceeds_its_budget(width: int, height: int) -> None:
    for family in (FAMILIES["gemma-4"].with_setting(setting) for setting in FAMILIES["gemma-4"].settings):
        budget = int(family.setting.partition("=")[2].rstrip(")"))
        assert image_tokens(family, width, height) <= budget + 2


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, 0), (-1, -1)])
def test_a_picture_without_pixels_is_refused(families: Mapping[str, Family], width: int, height: int) -> None:
    with pytest.raises(UsageError, match="no content"):
        image_tokens(families["qwen3-vl"], width, height)
