"""The true number of tokens that a model spends on a sound."""

from __future__ import annotations

from mmdeploy.catalog.families import Family
from mmdeploy.errors import UsageError

_TOKENS_PER_WINDOW = 13
"""Tokens that the encoder makes of one full window of 100 spectrogram frames, which is one second."""


def audio_tokens(family: Family, seconds: float) -> int:
    """Tokens of a sound of ``seconds`` seconds.

    Source: Qwen3OmniMoeProcessor (transformers 5.24.0): a spectrogram frame every 160 samples of 16 kHz; three
    convolutions halve what a full window of 100 frames leaves over, rounding up each time. 0.5 s is 7 tokens, a
    second 13, a minute 780. Begin and end of audio tokens are not counted.

    Raises `UsageError` for a family whose audio arithmetic is not known and for a length not above 0.
    """
    parameters = family.audio
    if parameters is None:
        raise UsageError(
            f"how {family.title} counts sounds is not known",
            next_step="use precise routing, which asks the model server",
        )
    if seconds <= 0:
        raise UsageError(f"a sound of {seconds:g} s has no content")
    frames = round(seconds * parameters.sample_rate) // parameters.hop
    windows, rest = divmod(frames, parameters.window)
    for _ in range(3):
        rest = -(-rest // 2)
    return max(1, windows * _TOKENS_PER_WINDOW + rest)
