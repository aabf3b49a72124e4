"""What is wrong with a deployment, whoever wrote it.

Documents are read, indexed as one deployment, and judged by rules.
"""
