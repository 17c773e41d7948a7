"""The loop's three values, its protocols, and the loop itself."""
