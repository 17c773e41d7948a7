"""Evidence about the published policies: checks against their authors' code and tests."""
