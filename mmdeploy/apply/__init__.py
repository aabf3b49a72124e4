"""Putting a deployment on a cluster and taking it away: a plan, then stages as a stream of events."""
