"""Whether the model's files may be fetched, asked of the hub itself."""

from __future__ import annotations

import os
from urllib.parse import quote

from mmdeploy.errors import MmdeployError
from mmdeploy.preflight.facts import Facts


def ask(model: str, token: str | None, facts: Facts) -> int:
    """The status that the hub answers for the model's configuration: without a token first, so that a token travels
    only where it is needed. Raises `MmdeployError` for no answer; the token is in no message."""
    import urllib3

    rules = facts["hub"]
    if os.environ.get(rules["offline"], "").strip().lower() in ("1", "true", "yes", "on"):
        raise MmdeployError(f"{rules['offline']} is set")
    address = os.environ.get(rules["variable"]) or rules["address"]
    url = address.rstrip("/") + rules["path"].replace("{model}", quote(model))
    # As everything else that goes out: through the proxy that the environment names.
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    pool = urllib3.ProxyManager(proxy) if proxy and url.startswith("https:") else urllib3.PoolManager()
    try:
        status = _status(pool, url, {}, rules["seconds"])
        if status in (401, 403) and token:
            status = _status(pool, url, {"Authorization": f"Bearer {token}"}, rules["seconds"])
    except urllib3.exceptions.HTTPError as problem:
        raise MmdeployError(f"{address} does not answer from here ({type(problem).__name__})") from None
    finally:
        pool.clear()
    return status


def _status(pool: object, url: str, headers: dict[str, str], seconds: float) -> int:
    # Redirects lead to storage that needs no login: a 3xx is a yes.
    answer = pool.request("HEAD", url, headers=headers, timeout=seconds, retries=False, redirect=False)  # type: ignore[attr-defined]
    return int(answer.status)
