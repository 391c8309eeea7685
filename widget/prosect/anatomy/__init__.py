"""One vocabulary for all architectures; one small file per family."""
