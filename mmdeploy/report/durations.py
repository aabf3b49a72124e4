"""Lengths of time, as people read them."""

from __future__ import annotations


def text(seconds: float) -> str:
    """``45s``, ``1m02s``, ``2h05m``, ``3d04h``: two units at most, never rounded up."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
