"""The statistics of the experiments: moments, regression, classifiers, neighbours and scores."""
