"""What llm-d ships and supports, read from ``blueprints/catalog``."""

from mmdeploy.catalog.catalog import Catalog, Model, Release, Row

__all__ = ["Catalog", "Model", "Release", "Row"]
