"""Our counts against the models' own processors, on sizes drawn at random (``make truth``).

The processors come from the ``transformers`` package and run on the CPU without weights or downloads. Where a
processor has a function for its sizes alone, that is called (thousands of sizes); the families that the guides serve
are also run on real pixels. Families that only the engine implements cannot be compared here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.catalog.families import find, load_families
from mmdeploy.errors import UsageError
from mmdeploy.estimator.audio import audio_tokens
from mmdeploy.estimator.video import video_tokens
from mmdeploy.estimator.visual import image_tokens

pytest.importorskip("transformers", reason="the models' own processors are not installed: pip install mmdeploy[truth]")
np = pytest.importorskip("numpy", reason="numpy is not installed: pip install mmdeploy[truth]")

pytestmark = [pytest.mark.truth, pytest.mark.filterwarnings("ignore")]

FAMILIES = load_families(Path(__file__).parents[2] / "blueprints")
Oracle = Callable[[int, int], int]
"""Tokens of a picture by the processor's own code, from width and height."""


def sizes(count: int, longest: int = 12000) -> Iterator[tuple[int, int]]:
    """Widths and heights: small, ordinary and huge, at any aspect ratio, and many on rounding edges."""
    draw = random.Random(20260829)
    steps = (14, 16, 28, 32, 48, 224, 336, 384, 448, 640, 768)
    for index in range(count):
        top = (longest, 2000, 300)[index % 3]
        width, height = draw.randint(1, top), draw.randint(1, top)
        if index % 2:
            step = draw.choice(steps)
            width = min(longest, max(1, width // step * step + draw.choice((-1, 0, 0, 1, step // 2))))
            height = min(longest, max(1, height // step * step + draw.choice((-1, 0, 0, 1, step // 2))))
        yield width, height


def module(family: str, file: str) -> Any:
    """A module of the processor, or a skip when it needs something that is not installed (torch, mostly)."""
    try:
        return import_module(f"transformers.models.{family}.{file}")
    except ImportError as problem:
        pytest.skip(f"{family}'s processor needs more than is installed: {problem}")


def no_pixels(width: int, height: int) -> Any:
    """A picture that has a shape but takes no memory."""
    return np.broadcast_to(np.uint8(0), (3, height, width))


def qwen(patch: int, least: int, most: int) -> Oracle:
    processor = module("qwen2_vl", "image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil(
        size={"shortest_edge": least, "longest_edge": most}, patch_size=patch, merge_size=2
    )
    return lambda width, height: int(processor.get_number_of_image_patches(height, width, {})) // 4


def glm(family: str, name: str) -> Oracle:
    processor = getattr(module(family, f"image_processing_pil_{family}"), name)(
        size={"shortest_edge": 12544, "longest_edge": 9633792}
    )
    return lambda width, height: int(processor.get_number_of_image_patches(height, width, {})) // 4


def gemma4(budget: int) -> Oracle:
    resized = module("gemma4", "image_processing_pil_gemma4").get_aspect_ratio_preserving_size

    def count(width: int, height: int) -> int:
        rows, columns = resized(height, width, patch_size=16, max_patches=budget * 9, pooling_kernel_size=3)
        return int((rows // 48) * (columns // 48) + 2)

    return count


def gemma3(pan_and_scan: bool) -> Oracle:
    processor = module("gemma3", "image_processing_pil_gemma3").Gemma3ImageProcessorPil()

    def count(width: int, height: int) -> int:
        crops = processor.pan_and_scan(no_pixels(width, height), 256, 4, 1.2) if pan_and_scan else []
        return 260 * (1 + len(crops))

    return count


def pixtral(edge: int, cell: int) -> Oracle:
    resized = module("pixtral", "image_processing_pil_pixtral").get_resize_output_image_size

    def count(width: int, height: int) -> int:
        rows, columns = (side // cell for side in resized(no_pixels(width, height), (edge, edge), (cell, cell)))
        return int(max(1, rows) * (max(1, columns) + 1))  # the processor fails on a side of nothing, we count one cell

    return count


def internvl() -> Oracle:
    processor = module("got_ocr2", "image_processing_pil_got_ocr2").GotOcr2ImageProcessorPil(
        size={"height": 448, "width": 448}, crop_to_patches=True, min_patches=1, max_patches=12
    )
    return lambda width, height: int(processor.get_number_of_image_patches(height, width, {})) * 256 + 2


def llava(family: str, name: str, side: int, **attributes: Any) -> Oracle:
    image_processor = getattr(
        module(family, f"image_processing_pil_{family}"), name.replace("Processor", "ImageProcessorPil")
    )()
    processor = object.__new__(getattr(module(family, f"processing_{family}"), name))
    processor.__dict__.update(attributes, image_processor=image_processor)
    return lambda width, height: int(processor._get_number_of_features(height, width, side, side))


def minicpm() -> Oracle:
    processor = module("minicpmv4_6", "image_processing_pil_minicpmv4_6").MiniCPMV4_6ImageProcessorPil()

    def count(width: int, height: int) -> int:
        size, fit = (height, width), {"scale_resolution": 448, "patch_size": 14, "downsample_mode": "16x"}
        grid = processor.get_sliced_grid(size, 9, 448)
        rows, columns = processor.find_best_resize(size, **fit, allow_upscale=grid is None)
        tokens = (rows // 14) * (columns // 14) // 16 + 2
        if grid is not None:
            rows, columns = processor.get_refine_size(size, grid, **fit, allow_upscale=True)
            each = (rows // grid[0] // 14) * (columns // grid[1] // 14) // 16 + 2
            tokens += grid[0] * grid[1] * each
        return int(tokens)

    return count


def llama4() -> Oracle:
    code, torch = module("llama4", "image_processing_llama4"), import_module("torch")
    tile = import_module("transformers.image_utils").SizeDict(height=336, width=336)
    canvases = torch.tensor(code.find_supported_resolutions(16, tile))

    def count(width: int, height: int) -> int:
        canvas_height, canvas_width = code.get_best_fit((height, width), canvases).tolist()
        prompt = module("llama4", "processing_llama4").Llama4Processor._prompt_split_image(
            None, (canvas_height // 336, canvas_width // 336), 144
        )
        return int(prompt.count("<|"))

    return count


def kimi() -> Oracle:
    processor = module("kimi_k25", "image_processing_kimi_k25").Kimi_K25ImageProcessor()
    return lambda width, height: int(processor.get_number_of_image_patches(height, width, {})) // 4


def molmo2() -> Oracle:
    geometry = module("molmo2", "image_processing_molmo2").compute_crop_geometry

    def count(width: int, height: int) -> int:
        *_, rows, columns = geometry(height, width, 8, [4, 4], 378, 14)
        return 14 * 14 + math.ceil(int(rows) // 14 / 2) * math.ceil(int(columns) // 14 / 2)

    return count


SIZE_ORACLES: dict[str, Callable[[], Oracle]] = {
    "Qwen2-VL": lambda: qwen(14, 3136, 12845056),
    "Qwen2.5-VL": lambda: qwen(14, 3136, 12845056),
    "Qwen3-VL": lambda: qwen(16, 65536, 16777216),
    "Qwen3-Omni": lambda: qwen(16, 3136, 12845056),
    "GLM-4.5V": lambda: glm("glm4v", "Glm4vImageProcessorPil"),
    "GLM-4.6V": lambda: glm("glm46v", "Glm46VImageProcessorPil"),
    **{f"Gemma-4 (max_soft_tokens={n})": lambda n=n: gemma4(n) for n in (70, 140, 280, 560, 1120)},  # type: ignore[misc]
    "Gemma-3": lambda: gemma3(pan_and_scan=False),
    "Gemma-3 (pan&scan)": lambda: gemma3(pan_and_scan=True),
    "Pixtral-12B": lambda: pixtral(1024, 16),
    "Mistral-Small-3.1/3.2": lambda: pixtral(1540, 28),
    "InternVL3/3.5 (max_dynamic_patch=12)": internvl,
    "LLaVA-NeXT (1.6)": lambda: llava(
        "llava_next", "LlavaNextProcessor", 336, patch_size=14, num_additional_image_tokens=0
    ),
    "LLaVA-OneVision": lambda: llava(
        "llava_onevision", "LlavaOnevisionProcessor", 384, num_image_tokens=729, vision_aspect_ratio="anyres_max_9"
    ),
    "MiniCPM-V-4.6": minicpm,
    "Llama-4": llama4,
    "Kimi-K2.5": kimi,
    "Molmo2": molmo2,
}


@pytest.mark.parametrize("setting", SIZE_ORACLES)
def test_counts_like_the_processor(setting: str) -> None:
    family, oracle = find(FAMILIES, setting), SIZE_ORACLES[setting]()
    for width, height in sizes(3000):
        try:
            expected = oracle(width, height)
        except ValueError as refusal:
            if "aspect ratio" not in str(refusal):
                raise
            with pytest.raises(UsageError, match="aspect ratio"):
                image_tokens(family, width, height)
        else:
            assert image_tokens(family, width, height) == expected, f"{width}x{height}"


def qwen3_run() -> Oracle:
    code = module("qwen2_vl", "image_processing_pil_qwen2_vl")
    processor = code.Qwen2VLImageProcessorPil(
        size={"shortest_edge": 65536, "longest_edge": 16777216}, patch_size=16, merge_size=2
    )

    def count(width: int, height: int) -> int:
        return int(processor(images=[picture(width, height)], return_tensors="np")["image_grid_thw"].prod()) // 4

    return count


def gemma4_run() -> Oracle:
    processor = module("gemma4", "image_processing_pil_gemma4").Gemma4ImageProcessorPil()

    def count(width: int, height: int) -> int:
        out = processor(images=[picture(width, height)], return_tensors="np")
        return int(np.asarray(out["num_soft_tokens_per_image"]).item()) + 2

    return count


def phi4_run() -> Oracle:
    processor = module("phi4_multimodal", "image_processing_phi4_multimodal").Phi4MultimodalImageProcessor()

    def count(width: int, height: int) -> int:
        out = processor(images=[picture(width, height)], return_tensors="pt")
        return int(np.asarray(out["num_img_tokens"]).item())

    return count


def picture(width: int, height: int) -> Any:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install mmdeploy[truth]")
    return image.new("RGB", (width, height))


@pytest.mark.parametrize(
    ("setting", "make"), [("Qwen3-VL", qwen3_run), ("Gemma-4 (max_soft_tokens=280)", gemma4_run),
                          ("Phi-4-multimodal", phi4_run)]
)  # fmt: skip
def test_counts_like_the_processor_on_pixels(setting: str, make: Callable[[], Oracle]) -> None:
    family, run = find(FAMILIES, setting), make()
    for width, height in sizes(60, longest=2500):
        if max(width, height) / min(width, height) > 20:
            continue  # extreme shapes are covered by the size functions, and Phi-4's processor refuses them
        assert image_tokens(family, width, height) == run(width, height), f"{width}x{height}"


def test_counts_qwen3_video_like_the_processor() -> None:
    code = module("qwen3_vl", "video_processing_qwen3_vl")
    metadata = import_module("transformers.video_utils").VideoMetadata
    processor = code.Qwen3VLVideoProcessor(size={"shortest_edge": 4096, "longest_edge": 25165824})
    draw = random.Random(1)
    for _ in range(400):
        fps, seconds = draw.choice((15, 24, 25, 30, 60)), draw.randint(1, 900)
        width, height = draw.randint(64, 3000), draw.randint(64, 3000)
        clip = metadata(total_num_frames=fps * seconds, fps=fps, duration=seconds)
        frames = len(processor.sample_frames(clip))
        rows, columns = code.smart_resize(
            num_frames=frames, height=height, width=width, factor=32, min_pixels=4096, max_pixels=25165824
        )
        ours = video_tokens(FAMILIES["qwen3-vl"], width, height, fps, seconds)
        assert ours.frames == frames
        assert ours.visual == math.ceil(frames / 2) * (rows // 32) * (columns // 32)


def test_counts_qwen3_omni_audio_like_the_processor() -> None:
    lengths = module("qwen3_omni_moe", "processing_qwen3_omni_moe")._get_feat_extract_output_lengths
    for hundredths in range(1, 6000, 7):
        ours = audio_tokens(FAMILIES["qwen3-omni"], hundredths / 100)
        assert ours == int(lengths(np.int64(hundredths))), hundredths
