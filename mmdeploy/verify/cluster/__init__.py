"""A deployment on a cluster: what is there, whether the rights suffice, and how requests get to its pods."""
