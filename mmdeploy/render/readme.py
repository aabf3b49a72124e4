"""README.md of a bundle: what it is, and the commands for a person who applies it by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.errors import BlueprintError
from mmdeploy.render.deployment import Deployment


@cache
def _template(blueprints: Path) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(blueprints / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("README.md.j2")


def readme(catalog: Catalog, deployment: Deployment) -> str:
    """The text. Raises `BlueprintError` for a template that does not render."""
    directories = sorted({item.file.split("/")[0] for item in deployment.objects})
    try:
        text: str = _template(catalog.blueprints).render(
            spec=deployment.spec,
            roles=deployment.roles,
            model=deployment.model,
            release=deployment.release,
            status=deployment.status,
            warnings=deployment.warnings,
            directories=directories,
            sources=catalog.sources,
            ports=catalog.ports,
        )
    except Exception as problem:  # jinja2 raises whatever the template raises
        raise BlueprintError(f"cannot be rendered: {problem}", origin="blueprints/templates/README.md.j2") from None
    return text
