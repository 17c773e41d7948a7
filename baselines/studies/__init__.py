"""Evidence about the published policies: what their authors' own code and tests say."""
