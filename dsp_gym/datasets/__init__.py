"""Datasets that `dsp-gym dataset build` made: their manifest, and reading them without Spark."""
