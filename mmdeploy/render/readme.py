"""README.md of a bundle: what it is, and the commands for a person who applies it by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.errors import BlueprintError
from mmdeploy.render.deployment import Deployment

_TEMPLATE = "README.md.j2"


def _line_of(problem: Exception) -> int:
    """The line of the template at which an error arose: jinja2 makes the template's lines a frame's lines."""
    line, trace = getattr(problem, "lineno", None) or 1, problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(_TEMPLATE):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@cache
def _template(blueprints: Path) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    if not (blueprints / "templates" / _TEMPLATE).is_file():
        raise FileNotFoundError(_TEMPLATE)
    environment = Environment(
        loader=FileSystemLoader(blueprints / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(_TEMPLATE)


def _secrets(deployment: Deployment) -> list[tuple[str, str]]:
    """``(name, key)`` of each Secret that a pod takes its Hugging Face token from."""
    variables = (
        variable
        for role in deployment.roles
        for container in role.pod["containers"]
        for variable in container.get("env", ())
        if variable["name"] == "HF_TOKEN"
    )
    references = (variable.get("valueFrom", {}).get("secretKeyRef") for variable in variables)
    return list(dict.fromkeys((item["name"], item["key"]) for item in references if item))


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
            secrets=_secrets(deployment),
            sources=catalog.sources,
            ports=catalog.ports,
        )
    except FileNotFoundError:
        raise BlueprintError("cannot be read: no such file", origin=f"{catalog.label}/templates/{_TEMPLATE}") from None
    except Exception as problem:  # jinja2 raises whatever the template raises
        raise BlueprintError(
            f"cannot be rendered: {problem}", origin=f"{catalog.label}/templates/{_TEMPLATE}:{_line_of(problem)}"
        ) from None
    return text
