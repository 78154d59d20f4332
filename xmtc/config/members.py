"""Families of components: the built-in members and those of installed packages.

A family is a set of configuration classes that a `kind` tells apart, such as the losses or the heads. A package adds a
member by an entry point: the group is the family's, the name is the kind, and the object is the configuration class.

    [project.entry-points."xmtc.losses"]
    hinge = "my_package.hinge:HingeConfig"
"""

import functools
import importlib.metadata
import operator
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from xmtc.errors import ConfigError

FAMILIES: dict[str, "Members"] = {}
"""Every family that has been imported, by its group."""


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """The name, which no other object of the group has."""
        ...


T = TypeVar("T", bound=Named)


class Members:
    """Annotation of a configuration field that holds one member of a family.

    Type checkers see the annotated protocol; pydantic validates the union of all members, distinguished by `kind`.

    Args:
        group: group of the entry points, such as `xmtc.losses`.
        builtin: the configuration classes of this package.

    Example:
        >>> LossConfig = Annotated[LossSettings, Members("xmtc.losses", AsymmetricFocalConfig, CrossEntropyConfig)]
    """

    def __init__(self, group: str, *builtin: type) -> None:
        self.group = group
        self.builtin = {kind_of(member): member for member in builtin}
        FAMILIES[group] = self

    @functools.cached_property
    def installed(self) -> dict[str, type]:
        """Members of installed packages, by kind.

        Raises:
            ConfigError: an entry point cannot be imported, is not a configuration class or takes a built-in kind.
        """
        installed: dict[str, type] = {}
        for point in entry_points(self.group):
            if point.name in self.builtin or point.name in installed:
                raise ConfigError(
                    f"{_place(point)} takes a kind that exists already; uninstall the package, or rename the kind in it"
                )
            installed[point.name] = _settings_class(point)
        return installed

    @property
    def all(self) -> dict[str, type]:
        """The configuration class of every kind."""
        return self.builtin | self.installed

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the union of all members."""
        members: list[Any] = list(self.all.values())
        if len(members) == 1:
            return handler.generate_schema(members[0])
        union = functools.reduce(operator.or_, members)
        return handler.generate_schema(Annotated[union, Field(discriminator="kind")])


@functools.cache
def entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Return the entry points of a group, sorted by name."""
    points = importlib.metadata.entry_points(group=group)
    return tuple(sorted(points, key=lambda point: point.name))


def installed_components() -> dict[str, list[str]]:
    """List what each installed package adds, as `<kind> (<group>)`, by package and version, without importing it."""
    components: dict[str, list[str]] = {}
    for group in sorted(importlib.metadata.entry_points().groups):
        if not group.startswith("xmtc."):
            continue
        for point in entry_points(group):
            components.setdefault(_package(point), []).append(f"{point.name} ({group})")
    return components


def kind_of(config: type) -> str:
    """Return the `kind` of a configuration class.

    Raises:
        TypeError: it is not a dataclass, or its `kind` has no default.
    """
    defaults = (
        {field.name: field.default for field in fields(config)}
        if is_dataclass(config)
        else {}
    )
    kind = defaults.get("kind")
    if not isinstance(kind, str):
        raise TypeError(
            f'{config!r} needs a field kind: Literal["…"] with its name as the default'
        )
    return kind


def installed_objects(group: str, contract: type[T], taken: Sequence[str]) -> list[T]:
    """Load a group of objects that have no settings, such as metrics and sections of the report.

    Args:
        group: group of the entry points. Each names an object, or its class, which takes no arguments.
        contract: class or protocol with an attribute `name`.
        taken: names that exist already.

    Raises:
        ConfigError: an entry point cannot be imported, is something else, or has a name that is taken.
    """
    objects: dict[str, T] = {}
    for point in entry_points(group):
        loaded = _loaded(point)
        item = loaded() if isinstance(loaded, type) else loaded
        if not isinstance(item, contract):
            name = contract.__name__
            raise ConfigError(
                f"{_place(point)} is no {name}; see {contract.__module__}.{name}"
            )
        if item.name in taken or item.name in objects:
            raise ConfigError(
                f"{_place(point)} has the name {item.name!r}, which another one has; uninstall the package, or rename "
                "it there"
            )
        objects[item.name] = item
    return list(objects.values())


def _package(point: importlib.metadata.EntryPoint) -> str:
    """Name the package of an entry point, with its version."""
    if point.dist is None:
        return point.value
    return f"{point.dist.name} {point.dist.version}"


def _place(point: importlib.metadata.EntryPoint) -> str:
    """Name an entry point, with its package, in a message."""
    return f"{_package(point)}: its entry point {point.group}: {point.name}"


def _loaded(point: importlib.metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{_place(point)} = {point.value} cannot be imported: {error}; repair or uninstall the package"
        ) from error


def _settings_class(point: importlib.metadata.EntryPoint) -> type:
    """Load the configuration class that an entry point names, if its kind is the point's name."""
    config = _loaded(point)
    try:
        kind = kind_of(config)
    except TypeError as error:
        raise ConfigError(f"{_place(point)}: {error}") from error
    if kind != point.name:
        raise ConfigError(
            f"{_place(point)} names a class whose kind is {kind!r}; make the two equal in the package"
        )
    return config
