"""A real Kubernetes control plane for tests: real programs, fake nodes, and little else that is fake."""
