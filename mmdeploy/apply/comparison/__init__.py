"""What differs between two objects, inside embedded configurations too, and who manages the field."""
