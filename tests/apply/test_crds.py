"""Definitions read from files, and what else is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy.apply import crds
from mmdeploy.errors import UsageError

DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Pool, plural: pools}
  versions:
  - {name: v1, served: true, storage: true}
  - {name: v1alpha1, served: false, storage: false}
---
apiVersion: v1
kind: Namespace
metadata: {name: not-for-us}
"""


def test_a_file_and_a_directory(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.yaml").write_text(DEFINITION)
    (tmp_path / "README.md").write_text("not: [yaml")
    for source in (tmp_path, tmp_path / "inner" / "one.yaml"):
        (found,) = crds.read(str(source))
        assert found.name == "pools.example.com"
        assert found.kinds == {("example.com/v1", "Pool")}


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "other.yaml").write_text("kind: Namespace\n")
    sources = [tmp_path / "broken.yaml", tmp_path / "other.yaml", tmp_path / "absent.yaml", "http://127.0.0.1:9/x.yaml"]
    for source in sources:
        with pytest.raises(UsageError) as caught:
            crds.read(str(source))
        assert str(source) in str(caught.value.origin)
