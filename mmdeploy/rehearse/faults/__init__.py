"""Faults that a rehearsal can be run with."""

from mmdeploy.rehearse.faults import pods, routing, stages, surroundings
from mmdeploy.rehearse.faults.registry import FAULTS, Fault, find

__all__ = ["FAULTS", "Fault", "find", "pods", "routing", "stages", "surroundings"]
