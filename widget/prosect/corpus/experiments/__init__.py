"""The experiments: one module each, with the result it gives, and what the results share."""
