"""Every error of oncebox, drawn as one tree by who has to act.

OnceboxError
├── ConfigError            the operator: a setting is wrong                     exit 78
│   └── RegistrationError  the handler author: a registration is wrong          exit 78
├── UsageError             whoever typed the command                            exit 64
├── WrongState             an operator: what they act on is in another state     exit 1
├── ServiceUnavailable     nobody yet: Kafka, Postgres or Redis is away; retry  exit 69
├── Reject                 raised by handlers: a business failure is a result
└── NotExecuted            raised by handlers: proof that nothing was executed
"""

from typing import ClassVar


class OnceboxError(Exception):
    """The root: everything oncebox raises on purpose."""

    exit_code: ClassVar[int] = 1


class ConfigError(OnceboxError):
    """A setting cannot work as it is; the text names the setting, its value and the next step."""

    exit_code: ClassVar[int] = 78

    def __init__(self, problem: str, *, setting: str | None = None, advice: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.setting = setting
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.advice}" if self.advice else self.problem


class RegistrationError(ConfigError):
    """A handler or scope cannot be registered as it is; raised where it is registered."""


class UsageError(OnceboxError):
    """A command was called in a way that cannot work; the text says which way can."""

    exit_code: ClassVar[int] = 64


class WrongState(OnceboxError):
    """An operator's act needs another state; the text says which state there is. Nothing was changed."""

    def __init__(self, problem: str, *, advice: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.advice}" if self.advice else self.problem


class ServiceUnavailable(OnceboxError):
    """Kafka, Postgres or Redis did not answer; trying again later may succeed."""

    exit_code: ClassVar[int] = 69

    def __init__(self, service: str, problem: str, *, advice: str | None = None) -> None:
        super().__init__(problem)
        self.service = service
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.advice}" if self.advice else self.problem


class Reject(OnceboxError):
    """Raised by a handler: the message fails by the rules of the business.

    That is a result: it is stored with its code, and every redelivery is answered from it.
    """

    def __init__(self, message: str = "", *, code: str = "rejected") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class NotExecuted(OnceboxError):
    """Raised by a handler inside its effect block: the other system certainly did nothing, so trying again is safe."""
