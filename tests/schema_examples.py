"""Values that a JSON Schema allows, for Hypothesis; unknown keywords are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]

WORDS = {
    "$defs", "$id", "$ref", "$schema", "additionalProperties", "anyOf", "const", "default",
    "description", "discriminator", "enum", "exclusiveMaximum", "exclusiveMinimum", "format",
    "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "oneOf",
    "pattern", "prefixItems", "properties", "required", "title", "type",
}  # fmt: skip

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
"""Any JSON."""


def resolved(schema: Schema, root: Schema) -> Schema:
    """The schema that a reference names."""
    while "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema


def examples(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    """Values of a schema.

    Args:
        schema: what they keep.
        root: document that references of the schema point into.

    Returns:
        A strategy; patterns and formats of strings are not kept.
    """
    schema = resolved(schema, root)
    unknown = schema.keys() - WORDS
    assert not unknown, f"a schema says {unknown}, which no example is made by"
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for one_of in ("anyOf", "oneOf"):
        if one_of in schema:
            return st.one_of([examples(part, root) for part in schema[one_of]])
    kind = schema.get("type")
    if kind == "object":
        return _objects(schema, root)
    if kind == "array":
        return _arrays(schema, root)
    if kind == "string":
        return st.text(min_size=schema.get("minLength", 0), max_size=12)
    if kind in ("integer", "number"):
        return _numbers(schema)
    return {"boolean": st.booleans(), "null": st.none()}.get(kind, ANYTHING)


def _objects(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    properties = schema.get("properties", {})
    required = set(schema.get("required", ()))
    parts = {name: st.deferred(lambda part=part: examples(part, root))
             for name, part in properties.items()}  # fmt: skip
    optional = {name: part for name, part in parts.items() if name not in required}
    return st.fixed_dictionaries({name: parts[name] for name in required}, optional=optional)


def _arrays(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(examples(part, root) for part in schema["prefixItems"])).map(list)
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + 3), least + 3)
    items = st.deferred(lambda: examples(schema.get("items", {}), root))
    return st.lists(items, min_size=least, max_size=most)


def _numbers(schema: Schema) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if schema["type"] == "integer":
        return st.integers(low, high)
    return st.floats(
        low,
        high,
        allow_nan=False,
        allow_infinity=False,
        exclude_min="exclusiveMinimum" in schema,
        exclude_max="exclusiveMaximum" in schema,
    )
