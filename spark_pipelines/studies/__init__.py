"""Evidence about the data pipeline: its speed, and how it grows."""
