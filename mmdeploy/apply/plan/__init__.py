"""What an apply would do: a step an object, with every change and its cause."""
