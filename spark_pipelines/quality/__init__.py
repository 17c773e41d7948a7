"""Quality of raw rows: named checks, what becomes of every row, and the sum of it."""
