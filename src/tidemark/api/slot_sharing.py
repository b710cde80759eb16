"""`SlotSharingGroup`: a description of resources that programs may carry; checked, without effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from tidemark.config import MemorySize
from tidemark.errors import ConfigError

__all__ = ["SlotSharingGroup"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """A name and the resources wanted for the operators in the group."""

    Builder: ClassVar[type[SlotSharingGroupBuilder]]

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, compare=False)

    def get_name(self) -> str:
        """Name of the group."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Cores, None if unset."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Heap memory, None if unset."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Off-heap memory, None if unset."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Managed memory, None if unset."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Further resources by name."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroupBuilder:
        """Start a group.

        Raises:
            ConfigError: No name.
        """
        if not name:
            raise ConfigError("A SlotSharingGroup needs a name.")
        return SlotSharingGroupBuilder(name)


class SlotSharingGroupBuilder:
    """Collects the resources of a group; every method returns the builder."""

    def __init__(self, name: str) -> None:
        self._values: dict[str, Any] = {"name": name}
        self._external: dict[str, float] = {}

    def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroupBuilder:
        """Cores.

        Raises:
            ConfigError: Not positive.
        """
        self._values["cpu_cores"] = _positive(float(cpu_cores), cpu_cores, "The cores")
        return self

    def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroupBuilder:
        """Heap memory.

        Raises:
            ConfigError: Not positive.
        """
        self._values["task_heap_memory"] = _positive(
            task_heap_memory, task_heap_memory.get_bytes(), "The heap memory"
        )
        return self

    def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroupBuilder:
        """Heap memory in MiB."""
        return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

    def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroupBuilder:
        """Off-heap memory."""
        self._values["task_off_heap_memory"] = task_off_heap_memory
        return self

    def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroupBuilder:
        """Off-heap memory in MiB."""
        return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

    def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroupBuilder:
        """Managed memory."""
        self._values["managed_memory"] = managed_memory
        return self

    def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroupBuilder:
        """Managed memory in MiB."""
        return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

    def set_external_resource(self, name: str, value: float) -> SlotSharingGroupBuilder:
        """Some further resource.

        Raises:
            ConfigError: No name, or not positive.
        """
        if not name:
            raise ConfigError("A resource needs a name.")
        self._external[name] = _positive(float(value), value, f"The resource '{name}'")
        return self

    def build(self) -> SlotSharingGroup:
        """The finished group; memory that is not mentioned beside cores and heap memory is 0.

        Raises:
            ConfigError: Some resources, but not both cores and heap memory.
        """
        wanted = self._values.keys() - {"name"}
        if wanted or self._external:
            if not {"cpu_cores", "task_heap_memory"} <= wanted:
                raise ConfigError(
                    f"Slot sharing group '{self._values['name']}' has resources but not both cores and heap memory. "
                    "Set both, or nothing at all."
                )
            for name in ("task_off_heap_memory", "managed_memory"):
                self._values.setdefault(name, MemorySize())
        return SlotSharingGroup(**self._values, external_resources=dict(self._external))


SlotSharingGroup.Builder = SlotSharingGroupBuilder


def _positive(value: T, number: float, what: str) -> T:
    if not number > 0:
        raise ConfigError(f"{what} of a slot sharing group must be positive, not {number}.")
    return value
