"""The only room that talks to a cluster: requests as plain JSON, errors in one sentence."""
