"""The requests that show prices: their length as the router counts it, and the picture that it cannot read.

How the router counts text is taken from `mmdeploy.estimator.bodies`, whose tests hold it against the running program.
"""

from __future__ import annotations

import base64
import struct
from random import Random

import pytest

from mmdeploy.estimator import bodies
from mmdeploy.estimator.media import read_header
from mmdeploy.verify.bodies import CHAT, Planned, Writer
from mmdeploy.verify.pricing import Letter

LETTER = Letter(Writer("Qwen/Qwen3-VL-32B-Instruct", Random(1)))


def picture_of(planned: Planned) -> bytes:
    assert planned.body is not None
    url = planned.body["messages"][0]["content"][0]["image_url"]["url"]
    return base64.b64decode(url.partition("base64,")[2])


@pytest.mark.parametrize("tokens", [65, 211, 212, 256, 512, 1023])
def test_the_text_has_the_length_that_was_asked_for(tokens: int) -> None:
    """4 bytes a token, of the role's name too (router.md §3.2)."""
    planned = LETTER.asked("a", "pricing.step", tokens, LETTER.picture((640, 480)))
    assert bodies.read(planned.body, CHAT).text_tokens == tokens


def test_a_shorter_text_is_the_beginning_of_a_longer_one() -> None:
    assert LETTER.text(256).startswith(LETTER.text(211))


def test_the_text_alone_and_with_a_picture_is_the_same() -> None:
    alone = LETTER.asked("a", "pricing.text", 256, None).body
    with_picture = LETTER.asked("b", "pricing.count", 256, LETTER.picture((64, 64))).body
    assert alone is not None
    assert with_picture is not None
    assert alone["messages"][0]["content"] == with_picture["messages"][0]["content"][1]["text"]


def test_no_two_pictures_are_the_same() -> None:
    for hidden in (False, True):
        assert len({LETTER.picture((64, 64), hidden).data for _ in range(20)}) == 20


@pytest.mark.parametrize("size", [(64, 64), (63, 17), (640, 480)])
def test_the_hidden_picture_is_a_bitmap_of_its_size(size: tuple[int, int]) -> None:
    """By the file format: two headers of 14 and 40 bytes, rows of 3 bytes a pixel padded to 4."""
    data = LETTER.picture(size, hidden=True).data
    width, height = size
    assert data[:2] == b"BM"
    assert struct.unpack_from("<I", data, 2)[0] == len(data) == 54 + height * ((3 * width + 3) // 4 * 4)
    assert struct.unpack_from("<ii", data, 18) == size
    header = read_header(data)
    assert (header.width, header.height, header.router_reads) == (width, height, False)


def test_the_router_does_not_see_the_size_of_the_hidden_picture() -> None:
    planned = LETTER.asked("a", "pricing.step", 256, LETTER.picture((64, 64), hidden=True), hidden=True)
    (item,) = bodies.read(planned.body, CHAT).items
    assert item.hidden == "BMP"  # type: ignore[union-attr]


def test_a_router_that_adds_the_answer_is_given_room_and_an_end() -> None:
    """router-observed.md, third way: a large max_tokens; the answer must be short all the same."""
    body = LETTER.asked("a", "pricing.step", 256, LETTER.picture((64, 64)), whole=True).body
    assert body is not None
    assert body["max_tokens"] >= 2048
    assert body["stop"]
