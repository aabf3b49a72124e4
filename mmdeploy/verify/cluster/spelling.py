"""Requests to pods and Services as kubectl commands, for those who may only paste."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mmdeploy.verify import commands
from mmdeploy.verify.cluster.places import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mmdeploy.verify.transport import Request


def speller(options: Sequence[str]) -> commands.Spelling:
    """How requests are spelled; ``options`` lead kubectl to the same cluster (``--context``, ``--kubeconfig``).

    kubectl sends no headers of its own, so that these requests are not told apart from those of others.
    """

    def spell(asked: Request) -> str:
        target = place(asked.endpoint.url)
        if target is None:
            return commands.curl(asked)
        verb = "get" if asked.body is None else "create"
        line = shlex.join(["kubectl", *options, verb, "--raw", target.proxied(asked.path)])
        return commands.with_body(asked, line, "-f -")

    return spell
