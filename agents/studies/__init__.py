"""Evidence about the learned policies: claims, learning curves, benchmarks."""
