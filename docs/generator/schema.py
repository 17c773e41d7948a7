"""Tables of configuration keys, from the JSON Schema of their models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsp_gym.config.kinds import model_of
from generator.markdown import anchor, cleaned, code, page, plain, table

Schema = Mapping[str, Any]


def config_kind(kind: str) -> str:
    """Every key of one kind of configuration file."""
    model = model_of(kind)
    schema = model.model_json_schema()
    sections = [f"## {model.__name__}\n\n{cleaned(model)}\n\n{properties(schema)}"]
    for title, definition in schema.get("$defs", {}).items():
        about = plain(definition.get("description", ""))
        sections.append(f"## {title}\n\n{about}\n\n{properties(definition)}")
    return page(
        f"Configuration: {kind}",
        f"Keys of the files in `configs/{kind}/`. Check a file with `dsp-gym config check FILE`; "
        f"`dsp-gym config schema {kind}` prints the same as JSON Schema for editors.",
        *sections,
    )


def properties(schema: Schema) -> str:
    """A table of the keys of an object."""
    required = set(schema.get("required", ()))
    rows = []
    for name, entry in schema.get("properties", {}).items():
        if name in required:
            default = "**required**"
        elif "default" in entry:
            default = code(entry["default"])
        else:
            default = "see there" if "$ref" in entry else "empty"
        rows.append([f"`{name}`", kind_of_value(entry), default, entry.get("description", "")])
    return table(["key", "value", "default", "meaning"], rows) if rows else "No keys."


def kind_of_value(entry: Schema) -> str:
    """The type of a key in words, with its bounds."""
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(name)})" if name != "Ds2Config" else "as [ds2](#ds2)"
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    for key in ("anyOf", "oneOf"):
        if key in entry:
            return " or ".join(dict.fromkeys(kind_of_value(option) for option in entry[key]))
    match entry.get("type"):
        case "null":
            return "none"
        case "array" if "prefixItems" in entry:
            return "[" + ", ".join(kind_of_value(item) for item in entry["prefixItems"]) + "]"
        case "array":
            return f"list of {kind_of_value(entry.get('items', {}))}"
        case "object":
            values = entry.get("additionalProperties")
            return f"mapping to {kind_of_value(values)}" if isinstance(values, dict) else "mapping"
        case "boolean":
            return "true or false"
        case "string":
            return "text"
        case "number" | "integer":
            return f"{entry['type']}{bounds(entry)}"
    return "any"


def bounds(entry: Schema) -> str:
    """The bounds of a number, as signs."""
    signs = {
        "minimum": ">=",
        "ge": ">=",
        "exclusiveMinimum": ">",
        "gt": ">",
        "maximum": "<=",
        "le": "<=",
        "exclusiveMaximum": "<",
        "lt": "<",
    }
    found = [f"{sign} {entry[key]:g}" for key, sign in signs.items() if key in entry]
    return f" {', '.join(found)}" if found else ""
