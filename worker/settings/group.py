"""What every group of settings shares: frozen, closed to unknown names, silent about its input."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, SecretStr

from worker.settings.values import Env


class Group(BaseModel):
    """The settings of one system; a field is one setting, its description says what gets worse in each direction."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )
    env_prefix: ClassVar[str] = "ONCEBOX_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: where it lives in the model and what its variables are called."""

    path: tuple[str, ...]
    names: tuple[str, ...]
    secret: bool
    from_file: bool
    keeps_empty: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable that can give it."""
        return (*self.names, *(f"{name}_FILE" for name in self.names)) if self.from_file else self.names


def _holds_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(_holds_secret(part) for part in get_args(annotation))


def settings_of(path: tuple[str, ...], group: type[Group], prefix: str | None = None) -> Iterator[Setting]:
    """Every setting of a group that lives at this path."""
    for name, field in group.model_fields.items():
        spelled = next((item for item in field.metadata if isinstance(item, Env)), Env(()))
        secret = _holds_secret(field.annotation)
        yield Setting(
            path=(*path, name),
            names=spelled.names or ((prefix or group.env_prefix) + name.upper(),),
            secret=secret,
            from_file=secret or spelled.from_file,
            keeps_empty=spelled.keeps_empty,
        )
