"""Simulated engines and a stand-in for the router, behind the real protocols, for rehearsals and for tests."""
