"""Settings of `ExecutionConfig` for Java user code, which there is none of: kept and told back, without effect."""

from __future__ import annotations

from typing import Self

from tidemark.config.layered import LayeredConfig
from tidemark.config.modes import ClosureCleanerLevel
from tidemark.config.options import Options

__all__ = ["JavaSettings"]


class JavaSettings(LayeredConfig):
    """Mixed into `ExecutionConfig`."""

    def enable_closure_cleaner(self) -> Self:
        """Accepted for compatibility; Python has no closures to clean."""
        self._set(Options.CLOSURE_CLEANER_LEVEL, ClosureCleanerLevel.RECURSIVE)
        return self

    def disable_closure_cleaner(self) -> Self:
        """Accepted for compatibility; Python has no closures to clean."""
        self._set(Options.CLOSURE_CLEANER_LEVEL, ClosureCleanerLevel.NONE)
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set; on by default."""
        return self._get(Options.CLOSURE_CLEANER_LEVEL) is not ClosureCleanerLevel.NONE

    def enable_force_kryo(self) -> Self:
        """Accepted for compatibility; there is no Kryo here."""
        self._set(Options.FORCE_KRYO, True)
        return self

    def disable_force_kryo(self) -> Self:
        """Accepted for compatibility; there is no Kryo here."""
        self._set(Options.FORCE_KRYO, False)
        return self

    def is_force_kryo_enabled(self) -> bool:
        """Return what was set; off by default."""
        return self._get(Options.FORCE_KRYO)

    def enable_force_avro(self) -> Self:
        """Accepted for compatibility; the declared type decides."""
        self._set(Options.FORCE_AVRO, True)
        return self

    def disable_force_avro(self) -> Self:
        """Accepted for compatibility; the declared type decides."""
        self._set(Options.FORCE_AVRO, False)
        return self

    def is_force_avro_enabled(self) -> bool:
        """Return what was set; off by default."""
        return self._get(Options.FORCE_AVRO)

    def enable_generic_types(self) -> Self:
        """Accepted for compatibility; there is no Kryo here."""
        self._set(Options.GENERIC_TYPES, True)
        return self

    def disable_generic_types(self) -> Self:
        """Accepted for compatibility; there is no Kryo here."""
        self._set(Options.GENERIC_TYPES, False)
        return self

    def has_generic_types_disabled(self) -> bool:
        """Return what was set; generic types are on by default."""
        return not self._get(Options.GENERIC_TYPES)

    def add_default_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> Self:
        """Accepted for compatibility and ignored."""
        return self

    def register_type_with_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> Self:
        """Accepted for compatibility and ignored."""
        return self

    def register_kryo_type(self, type_class_name: str) -> Self:
        """Accepted for compatibility and ignored."""
        return self

    def register_pojo_type(self, type_class_name: str) -> Self:
        """Accepted for compatibility and ignored."""
        return self

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Nothing: Java classes are not looked at."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Nothing: Java classes are not looked at."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Nothing: Java classes are not looked at."""
        return []
