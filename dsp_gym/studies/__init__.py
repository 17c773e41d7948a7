"""Evidence: published numbers, fits, benchmarks and validation. The product imports none of it."""
