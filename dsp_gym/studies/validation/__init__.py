"""What takes long and needs a real Flink: each module measures one claim and writes its figures.

`make validate` runs them; `docs/validation.py` makes docs/validation.md of what they write.
"""
