"""Every mistake on the command line or in the settings gives one clear message, the right exit code, no traceback."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command import complaint, oncebox

DATABASE = "postgresql://app:hunter2@127.0.0.1:1/ledger"
REGISTRY = "from worker.rules.registry import Registry\nregistry = Registry()\n"
HANDLER = """
@registry.handler("payments.charges", scope="payments", key="id")
async def charge(message: dict) -> None: ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with some modules of a user's; their names are of no package that is installed."""
    files = {
        "good.py": REGISTRY + HANDLER,
        "other.py": REGISTRY + HANDLER.replace("charge", "refund").replace("payments.", "more."),
        "named.py": "from good import registry as reg\n",
        "empty.py": "",
        "bare.py": REGISTRY,
        "wrong.py": "registry = {}\n",
        "needy.py": "import package_that_is_not_there\n",
        "broken.py": "x = 1\ndef f(:\n",
        "raising.py": "x = 1\nraise KeyError('hello')\n",
        "leaving.py": "import sys\nsys.exit(3)\n",
        "misregistered.py": REGISTRY + HANDLER.replace("payments", "paymints"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "no registry is named\n  name a module with handlers: `oncebox run handlers.payments`"),
        (["goood"], "there is no module goood\n  did you mean good?"),
        (["nowhere.at.all"], "there is no module nowhere\n  run it in the directory"),
        (["good.inner"], "there is no module good.inner"),
        (["good.py"], "is a file's path, not a module's name\n  write good"),
        (["./handlers/good.py"], "write handlers.good"),
        (["two words"], "is not a module's name"),
        (["empty"], "empty has no 'registry'\n  add `registry = Registry()`"),
        (["named"], "named has no 'registry'\n  it has a registry called reg: write named:reg"),
        (["good:other"], "has no 'other'\n  it has a registry called registry: write good:registry"),
        (["wrong"], "wrong gives a dict, not a Registry"),
        (["bare"], "bare: no handler is registered"),
        (["needy"], "it imports package_that_is_not_there, which was not (needy.py, line 1)"),
        (["broken"], "broken cannot be imported: SyntaxError: invalid syntax (broken.py, line 2)"),
        (["raising"], "raising cannot be imported: KeyError: 'hello' (raising.py, line 2)"),
        (["leaving"], "leaving cannot be imported: SystemExit: 3 (leaving.py, line 2)"),
        (["misregistered"], "webhooks (misregistered.py, line 4)\n  define it above the handler"),
        (["good", "wrong"], "wrong gives a dict, not a Registry"),
    ],
)
def test_a_registry_that_cannot_be_used(project: Path, names: list[str], problem: str) -> None:
    text = complaint(oncebox("run", *names, cwd=project, DATABASE_URL=DATABASE), 78)
    assert problem in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["runn"], "there is no command 'runn'\n  did you mean run?"),
        (["frobnicate"], "`oncebox --help` lists the commands"),
        (["run", "--nonsense"], "No such option: --nonsense"),
        (["check", "--config"], "requires an argument"),
        (["migrate", "extra"], "extra"),
    ],
)
def test_a_wrong_command_line(tmp_path: Path, arguments: list[str], problem: str) -> None:
    assert problem in complaint(oncebox(*arguments, cwd=tmp_path), 64)


@pytest.mark.parametrize(
    ("verb", "text", "problem"),
    [
        ("run", "engine: {lease: 5s\n", "line 2, column 1"),
        ("check", "engine:\n  leese: 5s\n", "did you mean lease?"),
        ("migrate", "engine:\n  lease: soon\n", "engine.lease (file w.yaml:2) is 'soon': not a duration"),
    ],
)
def test_a_settings_file_with_a_mistake(tmp_path: Path, verb: str, text: str, problem: str) -> None:
    (tmp_path / "w.yaml").write_text(text)
    answer = oncebox(verb, "--config", "w.yaml", cwd=tmp_path, DATABASE_URL=DATABASE)
    assert problem in complaint(answer, 78)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({}, "DATABASE_URL is not set"),
        ({"DATABASE_URL": "mysql://app:hunter2@h/d"}, "begins with mysql://"),
        ({"DATABASE_URL": "postgresql://app:hunter2/x@h/d"}, "DATABASE_URL is ***"),
        ({"DATABASE_URL": DATABASE, "ONCEBOX_LEESE": "5s"}, "did you mean ONCEBOX_LEASE?"),
        ({"DATABASE_URL": f"{DATABASE}?sslmode=hopefully"}, "sslmode"),
        ({"DATABASE_URL": f"{DATABASE}?sslmode=verify-full&sslrootcert=/nowhere.pem"}, "/nowhere.pem"),
    ],
)
def test_wrong_settings(tmp_path: Path, environ: dict[str, str], problem: str) -> None:
    assert problem in complaint(oncebox("migrate", cwd=tmp_path, **environ), 78)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (DATABASE, "Postgres at 127.0.0.1:1 does not answer"),
        (DATABASE.replace("127.0.0.1", "db.invalid"), "db.invalid"),
    ],
)
def test_a_database_that_does_not_answer(tmp_path: Path, url: str, problem: str) -> None:
    assert problem in complaint(oncebox("migrate", cwd=tmp_path, DATABASE_URL=url), 69)


def test_a_database_that_refuses(tmp_path: Path, database_url: str) -> None:
    parts = urlsplit(database_url)
    place = f"{parts.hostname}:{parts.port}"
    login = parts.netloc.rpartition("@")[0]
    for url, problem in (
        (f"postgresql://{parts.username}:hunter2@{place}{parts.path}", f"refused user '{parts.username}'"),
        (f"postgresql://{login}@{place}/nowhere", "has no database 'nowhere'"),
        (f"postgresql://{login}@{place}{parts.path}?sslmode=require", "does not speak TLS"),
    ):
        assert problem in complaint(oncebox("migrate", cwd=tmp_path, DATABASE_URL=url), 78)


def test_a_broker_that_does_not_answer(project: Path) -> None:
    answer = oncebox("run", "good", cwd=project, DATABASE_URL=DATABASE, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert "Kafka at 127.0.0.1:1 does not answer" in complaint(answer, 69)
    answer = oncebox("run", "good", cwd=project, DATABASE_URL=DATABASE)
    assert "KAFKA_BOOTSTRAP_SERVERS is not set" in complaint(answer, 78)


def test_a_topic_that_does_not_exist(project: Path, kafka: str, database_url: str) -> None:
    answer = oncebox("run", "good", cwd=project, DATABASE_URL=database_url, KAFKA_BOOTSTRAP_SERVERS=kafka)
    assert "payments.charges" in complaint(answer, 78)


def test_a_mistake_of_ours_is_short_and_a_flag_shows_where_it_is(project: Path) -> None:
    (project / "good.py").write_text("from worker.errors import Reject\nraise Reject('hello')\n")
    for flag in (["--debug", "run", "good"], ["run", "good", "--debug"]):
        answer = oncebox(*flag, cwd=project, DATABASE_URL=DATABASE)
        assert answer.code == 1
        assert "Traceback" in answer.error
    answer = oncebox("run", "good", cwd=project, DATABASE_URL=DATABASE, ONCEBOX_DEBUG="1")
    assert "Traceback" in answer.error
    assert "--debug" in complaint(oncebox("run", "good", cwd=project, DATABASE_URL=DATABASE), 78)
