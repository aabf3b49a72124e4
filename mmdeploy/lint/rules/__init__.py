"""The rules, a module a group of codes."""
