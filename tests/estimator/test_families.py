"""The families' file, and what processor files and engine flags make of a family."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.catalog.families import Family, find, from_processor_config, load_families
from mmdeploy.errors import BlueprintError, UnknownModelError, UsageError
from mmdeploy.estimator.video import video_tokens
from mmdeploy.estimator.visual import image_tokens

REPOSITORY = Path(__file__).parents[2]

# Public copies of the published file, the fields that matter
QWEN3_VL_FILE = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}


def test_every_family_says_where_it_comes_from(families: Mapping[str, Family]) -> None:
    assert all(family.source and family.settings for family in families.values())
    assert "from memory" in families["llama-4"].confidence
    assert not families["qwen3-vl"].confidence


def test_says_what_it_knows(families: Mapping[str, Family]) -> None:
    assert families["qwen3-vl"].modalities == ("image", "video")
    assert families["qwen3-omni"].modalities == ("image", "audio")
    assert families["qwen3-vl"].parameters is families["qwen3-vl"].image
    assert [families[slug].kind for slug in ("qwen3-vl", "gemma-4", "internvl")] == ["area", "fixed", "tiles"]


@pytest.mark.parametrize("name", ["qwen3-vl", "Qwen3-VL", " QWEN3-VL "])
def test_finds_by_slug_setting_and_any_case(families: Mapping[str, Family], name: str) -> None:
    assert find(families, name).slug == "qwen3-vl"


def test_finds_settings(families: Mapping[str, Family]) -> None:
    family = find(families, "Gemma-4 (max_soft_tokens=140)")
    assert (family.slug, family.setting) == ("gemma-4", "Gemma-4 (max_soft_tokens=140)")
    assert find(families, "gemma-4").setting == "Gemma-4 (max_soft_tokens=280)"
    assert find(families, "Kimi-VL-A3B-Thinking-2506").confidence


def test_unknown_family_lists_the_known(families: Mapping[str, Family]) -> None:
    with pytest.raises(UnknownModelError) as refusal:
        find(families, "qwen3vl")
    assert refusal.value.nearest[0] == "qwen3-vl"
    assert "gemma-4" in refusal.value.found
    with pytest.raises(UnknownModelError) as refusal:
        families["gemma-4"].with_setting("Gemma-4 (max_soft_tokens=100)")
    assert "Gemma-4 (max_soft_tokens=140)" in refusal.value.nearest


def write(directory: Path, text: str) -> Path:
    (directory / "catalog").mkdir()
    (directory / "catalog" / "families.yaml").write_text(text)
    return directory


GOOD = """families:
  one:
    title: One
    image: {algorithm: fixed-grid, side: 336, patch: 14}
    settings: {One: }
    source: here
"""


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("fixed-grid", "fixed"), 4, "`algorithm` must be one of"),
        (("side: 336, ", ""), 4, "lacks side"),
        (("side: 336", "side: 336, merge: 2"), 4, "unknown key `merge`"),
        (("side: 336", "side: wide"), 4, "must be of type int"),
        (("side: 336", "side: true"), 4, "must be of type int"),
        (("{One: }", "{}"), 5, "at least one setting"),
        (("{One: }", "{One: {image: {sides: 3}}}"), 5, "unknown key `sides`"),
        (("{One: }", "{One: {img: {}}}"), 5, "unknown key `img`"),
        (("    source: here\n", ""), 2, "`source` is missing"),
        (("source: here", "source: [here]"), 6, "`source` must be a text"),
        (("title: One", "titel: One"), 3, "unknown key `titel`"),
        (("    title", "    processors: {P: {edge: 3}}\n    title"), 3, "unknown key `edge`"),
        (("families:", "family:"), 1, "`families` must be a mapping"),
        (("source: here", "source: here\n    source: there"), 7, "given twice"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, change: tuple[str, str], line: int, said: str) -> None:
    with pytest.raises(BlueprintError, match=said) as refusal:
        load_families(write(tmp_path, GOOD.replace(*change)))
    assert refusal.value.origin is not None
    assert refusal.value.origin.split(":")[-2] == str(line)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BlueprintError):
        load_families(tmp_path)


def test_published_file_leaves_the_family_as_it_is(families: Mapping[str, Family]) -> None:
    assert families["qwen3-vl"].with_processor_config(QWEN3_VL_FILE).image == families["qwen3-vl"].image


def hd_tokens(family: Family) -> int:
    return image_tokens(family, 1280, 720)


# Counts are the processors' own, run with these values (transformers 5.24.0, vLLM 0.32.0)
@pytest.mark.parametrize(
    ("setting", "config", "tokens"),
    [
        ("qwen3-vl", {"max_pixels": 262144}, 252),
        ("qwen3-vl", {"size": {"longest_edge": 262144}}, 252),
        ("qwen3-vl", {"size": {"max_pixels": 262144}}, 252),
        ("qwen3-vl", {"max_pixels": 262144, "size": {"longest_edge": 4096}}, 252),  # the older spelling wins
        ("qwen3-vl", {"image_processor": {"size": {"longest_edge": 262144}}}, 252),
        ("qwen3-vl", {"image_processor_type": "Qwen2VLImageProcessor"}, 880),  # class default: 1,280 tokens at most
        ("qwen2.5-vl", {"patch_size": 16, "merge_size": 2}, 880),
        ("qwen2.5-vl", {"patch_size": 16, "spatial_merge_size": 2}, 880),
        ("gemma-4", {"max_soft_tokens": 560}, 529),
        ("gemma-4", {"image_seq_length": 560}, 529),
        ("gemma-4", {"image_seq_length": 280, "image_processor": {"max_soft_tokens": 560}}, 529),
        ("gemma-3", {"do_pan_and_scan": True}, 780),
        ("gemma-3", {"do_pan_and_scan": None}, 260),
        ("kimi-vl", {"in_token_limit": 16384, "merge_kernel_size": [2, 2], "patch_size": 14}, 1196),
        ("kimi-k2.5", {"media_proc_cfg": {"in_patch_limit": 4096, "patch_limit_on_one_side": 512}}, 1075),
        ("pixtral", {"size": {"longest_edge": 1540}, "patch_size": {"height": 16, "width": 16}}, 3645),
        ("internvl", {"max_patches": 6, "crop_to_patches": True, "size": {"height": 448, "width": 448}}, 770),
        ("internvl", {"max_dynamic_patch": 6}, 770),
        ("llava-next", {"image_grid_pinpoints": [[336, 672], [672, 336]], "patch_size": 14}, 1608),
        ("llava-onevision", {"vision_aspect_ratio": "anyres_max_4"}, 3649),
        ("phi-4-multimodal", {"dynamic_hd": 2}, 753),
        ("minicpm-v-4.6", {"downsample_mode": "4x"}, 1796),
        ("minicpm-v-4.6", {"slice_mode": False}, 68),
        ("molmo", {"max_crops": 4, "overlap_margins": [4, 4]}, 580),
        ("deepseek-vl2", {"candidate_resolutions": [[384, 384]], "patch_size": 14, "downsample_ratio": 2}, 421),
        ("llava-1.5", {"crop_size": {"height": 224, "width": 224}, "image_processor_type": "CLIPImageProcessor"}, 256),
    ],
)
def test_spellings(families: Mapping[str, Family], setting: str, config: dict[str, Any], tokens: int) -> None:
    assert hd_tokens(find(families, setting).with_processor_config(config)) == tokens


def test_a_file_that_names_its_class_gets_the_class_defaults(families: Mapping[str, Family]) -> None:
    family = families["qwen3-vl"].with_processor_config({"image_processor_type": "Qwen2VLImageProcessorFast"})
    assert image_tokens(family, 4000, 3000) <= 1003520 // 1024


def test_file_of_another_model_is_refused(families: Mapping[str, Family]) -> None:
    with pytest.raises(UsageError, match="Gemma4ImageProcessor, which Qwen3-VL does not use"):
        families["qwen3-vl"].with_processor_config({"image_processor_type": "Gemma4ImageProcessorFast"})


@pytest.mark.parametrize(
    ("setting", "config", "said"),
    [
        ("gemma-4", {"max_soft_tokens": 300}, "must be one of 70, 140, 280, 560, 1120"),
        ("qwen3-vl", {"max_pixels": "1000"}, "must be a number"),
        ("qwen3-vl", {"max_pixels": 0}, "must be more than 0"),
        ("qwen3-vl", {"patch_size": 14.5}, "must be a whole number"),
        ("gemma-3", {"do_pan_and_scan": 1}, "must be true or false"),
        ("llava-next", {"image_grid_pinpoints": [3]}, "list of pairs"),
        ("llava-next", {"image_grid_pinpoints": [[100, 100]]}, "smaller than the view"),
        ("minicpm-v-4.6", {"downsample_mode": "2x"}, "4x or 16x"),
        ("internvl", {"min_patches": 20}, "cannot both hold"),
        ("molmo", {"overlap_margins": [12, 12]}, "leave nothing"),
        ("llava-1.5", {"crop_size": 7}, "holds no patch"),
    ],
)
def test_values_that_cannot_be(families: Mapping[str, Family], setting: str, config: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find(families, setting).with_processor_config(config)


@pytest.mark.parametrize(
    ("kwargs", "tokens"),
    [
        ({"max_pixels": 262144}, 252),
        ({"size": {"longest_edge": 262144}}, 252),
        ({"images_kwargs": {"max_pixels": 262144}}, 252),
        ({"max_pixels": 16777216, "images_kwargs": {"size": {"longest_edge": 262144}}}, 252),
        ({"min_pixels": 2097152, "images_kwargs": {"size": {"longest_edge": 16777216}}}, 2074),
        ({"fps": 1, "return_tensors": "pt"}, 880),
    ],
)
def test_engine_flags(families: Mapping[str, Family], kwargs: dict[str, Any], tokens: int) -> None:
    assert hd_tokens(families["qwen3-vl"].with_processor_kwargs(kwargs)) == tokens


def test_flags_without_effect_keep_the_family(families: Mapping[str, Family]) -> None:
    assert families["qwen3-vl"].with_processor_kwargs({"do_convert_rgb": True}) is families["qwen3-vl"]


def test_flat_flags_reach_video_too(families: Mapping[str, Family]) -> None:
    def clip(family: Family) -> int:
        return video_tokens(family, 1280, 720, 24, 10).visual

    family = families["qwen3-vl"]
    assert clip(family.with_processor_kwargs({"size": {"longest_edge": 4194304}})) < 2048
    assert clip(family.with_processor_kwargs({"videos_kwargs": {"size": {"longest_edge": 4194304}}})) < 2048
    assert clip(family.with_processor_config({"size": {"longest_edge": 4194304}})) == 8800
    assert clip(family.with_processor_config({"video_processor": {"fps": 1}})) == 4400


def test_recognises_a_model_by_its_file(families: Mapping[str, Family]) -> None:
    family = from_processor_config(QWEN3_VL_FILE, families)
    assert (family.slug, hd_tokens(family)) == ("qwen3-vl", 880)
    only_type = {key: value for key, value in QWEN3_VL_FILE.items() if key != "processor_class"}
    family = from_processor_config(only_type, families)
    assert (family.title, hd_tokens(family), family.video) == ("Qwen2VLImageProcessor", 880, None)
    pixtral = {"image_processor_type": "PixtralImageProcessor", "patch_size": 14, "size": {"longest_edge": 1540}}
    assert image_tokens(from_processor_config(pixtral | {"spatial_merge_size": 2}, families), 1280, 720) == 1222


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"image_processor_type": "NovelImageProcessor"},
        {"processor_class": "X"},
        {"image_processor_type": "CLIPImageProcessor"},  # many kinds of model use it
        {"image_processor": "auto"},
    ],
)
def test_unknown_class_is_never_guessed(families: Mapping[str, Family], config: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError) as refused:
        from_processor_config(config, families)
    # Issue: an unknown family is an error that lists the known ones.
    assert "qwen3-vl" in str(refused.value.next_step)
    assert "gemma-4" in str(refused.value.next_step)
