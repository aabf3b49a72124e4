"""Benchmarks of mmdeploy; ``make bench`` runs them."""
