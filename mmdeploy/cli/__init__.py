"""Commands: parse, call, print. What they do lives in the other rooms."""

from mmdeploy.cli.program import main

__all__ = ["main"]
