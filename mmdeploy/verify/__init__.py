"""Probes collect facts from a running deployment; judges are pure functions from that evidence to verdicts."""
