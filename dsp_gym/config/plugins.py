"""What other distributions offer: policies, guardrails, loads and sources, through entry points.

A distribution names a class in a group of entry points; a configuration then names it as it names
what ships:

    [project.entry-points."dsp_gym.guardrails"]
    night_rest = "my_package.night_rest:NightRest"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from pydantic import (
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    model_serializer,
)

from dsp_gym.config.files import parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, DspGymError, ImportNameError, did_you_mean
from dsp_gym.shared_names import DISTRIBUTION, check_owner


class InstalledPart(ConfigModel):
    """A part that another distribution offers; in a file its keys stand beside its name."""

    config: SerializeAsAny[ConfigModel] = Field(description="its own configuration")

    @model_serializer(mode="wrap")
    def _flat(self, serialised: SerializerFunctionWrapHandler) -> dict[str, object]:
        # Flat again, as it was in the file, so that dumps can be read.
        whole = serialised(self)
        return {**{name: one for name, one in whole.items() if name != "config"}, **whole["config"]}


class Plugins:
    """The entry points of one group.

    Args:
        group: name of the group, such as `dsp_gym.policies`.
        noun: what one of them is, for messages, such as `policy`.
        guide: the page that says how to add one.
        error: raised where one cannot be loaded.
    """

    def __init__(
        self, group: str, noun: str, guide: str, error: type[DspGymError] = ConfigError
    ) -> None:
        self.group, self.noun, self.guide = group, noun, guide
        self._error = error

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    @cached_property
    def entries(self) -> Mapping[str, EntryPoint]:
        """Entry points by name, in order of their names."""
        return {entry.name: entry for entry in sorted(entry_points(group=self.group))}

    def forget(self) -> None:
        """Look again for entry points when they are asked for next."""
        self.__dict__.pop("entries", None)

    def load(self, name: str) -> object:
        """Import what a name stands for.

        Returns:
            The object its entry point names; usually a class with a `Config` model.

        Raises:
            ConfigError: No distribution offers one of that name.
            DspGymError: The import fails.
        """
        if name not in self.entries:
            raise ConfigError(
                f"there is no {self.noun} '{name}'",
                key=self.noun,
                remedy=did_you_mean(name, self.entries),
            )
        entry = self.entries[name]
        try:
            if entry.dist is not None and entry.dist.name == DISTRIBUTION:
                check_owner(entry.module)
            return entry.load()
        except ImportNameError as error:
            raise self._error(
                f"{self.noun} '{name}' cannot be loaded: {error.message}", remedy=error.remedy
            ) from error
        except (ImportError, AttributeError) as error:
            raise self._error(
                f"{self.noun} '{name}' cannot be loaded from '{entry.value}': {error}",
                remedy="See what is installed: dsp-gym doctor",
            ) from error

    def config(self, name: str, values: Mapping[str, object]) -> ConfigModel:
        """Check the configuration of one of them.

        Args:
            name: its name.
            values: its keys, without the one that names it.

        Returns:
            An instance of the `Config` of what the name stands for.

        Raises:
            ConfigError: A key is unknown or a value wrong, or it has no `Config`.
        """
        model = getattr(self.load(name), "Config", None)
        if not (isinstance(model, type) and issubclass(model, ConfigModel)):
            raise ConfigError(
                f"{self.noun} '{name}' has no `Config`, a ConfigModel of its settings",
                remedy=f"See {self.guide}.",
            )
        return parse(model, dict(values), f"{self.noun} '{name}'")

    def beside(
        self,
        key: str,
        shipped: Collection[str],
        make: Callable[[str, Mapping[str, object]], InstalledPart],
    ) -> Callable[[object, ValidatorFunctionWrapHandler], object]:
        """Let a union of configuration models take installed members, for a `WrapValidator`.

        Args:
            key: the key that names a member of the union, such as `kind`.
            shipped: its values for the members themselves.
            make: builds a configuration from the name and the other keys.

        Returns:
            A validator that gives installed names to `make`, shipped ones to the union, and
            refuses others.
        """

        def validate(value: object, union: ValidatorFunctionWrapHandler) -> object:
            if isinstance(value, InstalledPart):
                return value  # made already, it is not validated a second time
            keys = dict(value) if isinstance(value, Mapping) else {}
            name = keys.pop(key, None)
            if not isinstance(name, str) or name in shipped:
                return union(value)
            if name not in self:
                hint = did_you_mean(name, [*shipped, *self])
                raise ValueError(f"there is no {self.noun} '{name}'. {hint}")
            return make(name, keys)

        return validate

    def about(self, name: str) -> str:
        """One sentence about what a name stands for: the first line of its docstring.

        Returns:
            The sentence; empty without a docstring, and the cause where the class cannot be loaded.
        """
        try:
            text = inspect.getdoc(self.load(name)) or ""
        except DspGymError as error:
            return f"cannot be loaded: {error.message.partition(': ')[2]}"
        return text.partition("\n")[0]
