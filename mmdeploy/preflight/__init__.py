"""What a cluster lacks for a deployment, found before anything changes: reads, dry runs, and checks."""
