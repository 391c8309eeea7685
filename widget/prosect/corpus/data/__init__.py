"""Read and prepare what the experiments analyse: texts, annotated sentences, masked tokens."""
