"""What is to be on a cluster: a bundle read back from its directory, or a spec rendered in memory.

A directory is taken as it stands, edits and all: its kustomizations say which objects there are, its
``mmdeploy.yaml`` says what they are for.
"""

from mmdeploy.intended.bundle import SPEC_FILE, VALUES_FILE, place, read, rendered
from mmdeploy.intended.intended import ROLES, Intended, Object, role_of

__all__ = ["ROLES", "SPEC_FILE", "VALUES_FILE", "Intended", "Object", "place", "read", "rendered", "role_of"]
