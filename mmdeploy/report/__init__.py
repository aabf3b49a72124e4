"""The only room that formats: for people on a terminal, for logs, for machines. It takes plain data."""
