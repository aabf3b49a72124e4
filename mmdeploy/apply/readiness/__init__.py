"""How far the pods are, from sets down to containers, and waiting until they serve."""
