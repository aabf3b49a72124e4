"""The ``video:`` section that is least wrong on recorded videos.

How frames are sampled follows the model and stays as it is. What is fitted is what stands in for missing headers
(``defaultDuration``, ``defaultResolution``) and, where frames have a fixed price, that price. The best is searched
among the durations that the traffic has; each candidate is priced on every video.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.estimator.fitting import weighted_median
from mmdeploy.estimator.router import Estimator, VideoMetadata

Videos = Mapping[tuple[int, int, float, float, bool, int], int]
"""Width, height, frames a second, seconds, whether headers say so, true tokens → how many."""

DURATIONS = 20
"""Different lengths that are tried, the most frequent first."""


def video_error(priced_by: Mapping[str, Any] | Estimator, videos: Videos) -> int:
    """Sum of |price - true| under a ``video:`` section, or under an estimator."""
    estimator = priced_by if isinstance(priced_by, Estimator) else Estimator.from_block({"video": priced_by})
    total = 0
    for (width, height, fps, duration, told, true), weight in videos.items():
        said = VideoMetadata(width, height, duration, fps) if told else VideoMetadata()
        total += abs(estimator.video_with(said) - true) * weight
    return total


def fit_video(section: Mapping[str, Any], videos: Videos) -> dict[str, Any]:
    """``section`` with the defaults, and the fixed price a frame, that make `video_error` smallest."""
    return min(_candidates(section, videos), key=lambda candidate: video_error(candidate, videos))


def _candidates(section: Mapping[str, Any], videos: Videos) -> Iterator[dict[str, Any]]:
    yield copy.deepcopy(dict(section))
    untold = {key: weight for key, weight in videos.items() if not key[4]}
    durations: dict[float, int] = {}
    for (_, _, _, duration, _, _), weight in untold.items():
        durations[duration] = durations.get(duration, 0) + weight
    own = section.get("defaultDuration", 10)
    tried = sorted(durations, key=lambda duration: (-durations[duration], duration))[:DURATIONS]
    for duration in dict.fromkeys([own, *tried]):
        candidate = copy.deepcopy(dict(section))
        candidate["defaultDuration"] = int(duration) if duration == int(duration) else duration
        yield from _priced(candidate, videos if _fixed(section) else untold)


def _fixed(section: Mapping[str, Any]) -> bool:
    return bool(section.get("tokensPerFrame", {}).get("mode") == "static")


def _priced(section: dict[str, Any], videos: Videos) -> Iterator[dict[str, Any]]:
    """``section`` with the two prices a group of frames around the best one.

    Sum of |n * price - true| is sum of n * |price - true / n|: a weighted median, with n groups of frames a video.
    """
    estimator = Estimator.from_block({"video": section})
    ratios = []
    for (width, height, fps, duration, told, true), weight in videos.items():
        groups = estimator.video_frames(VideoMetadata(width, height, duration, fps) if told else VideoMetadata())
        if groups > 0:
            ratios.append((true // groups, weight * groups))
    if not ratios:
        return
    price = max(1, weighted_median(ratios))
    for tokens in (price, price + 1):
        candidate = copy.deepcopy(section)
        if _fixed(section):
            candidate["tokensPerFrame"]["static"] = {"numTokensPerFrame": tokens}
        else:
            candidate["defaultResolution"] = _resolution(tokens, estimator)
        yield candidate


def _resolution(tokens: int, estimator: Estimator) -> dict[str, int]:
    """A resolution in the default's shape that is priced ``tokens`` a frame."""
    factor = estimator.frame_factor
    width = max(1, round((tokens * factor * estimator.video_width / estimator.video_height) ** 0.5))
    while -(-tokens * factor // width) * width >= (tokens + 1) * factor:
        width -= 1
    return {"width": width, "height": -(-tokens * factor // width)}
