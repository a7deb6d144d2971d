"""What a user gets who installs oncebox: it works as nobody, on a read-only tree, with handlers of another package."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.installed import Installed, install, make_removable
from tests.engine.site import Site

HANDLERS = """
import os
from pydantic import BaseModel
from worker import Registry, Transaction

registry = Registry()

class Order(BaseModel):
    reference: str

@registry.handler(os.environ["SHOP_TOPIC"], scope="jobs", key="reference", kind="transactional")
async def record(message: Order, transaction: Transaction) -> str:
    await transaction.execute(f'INSERT INTO "{os.environ["ONCEBOX_SCHEMA"]}".shop VALUES ($1)', message.reference)
    return "recorded"
"""


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    # Not pytest's own folder: nobody but its owner may enter that.
    place = Path(tempfile.mkdtemp(prefix="oncebox-wheel-"))
    place.chmod(0o755)
    try:
        yield install(place, {"shop/__init__.py": "", "shop/orders.py": HANDLERS})
    finally:
        make_removable(place)
        shutil.rmtree(place)


def test_the_wheel_holds_the_worker_and_the_examples_and_nothing_else(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"worker"}
    assert {
        "worker/examples/payments.py",
        "worker/ledger/sql/claims.sql",
        "worker/stack/pom.xml",
        "worker/py.typed",
    } <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    migrations = Path(__file__).parents[2].glob("worker/ledger/sql/migrations/*.sql")
    assert {f"worker/ledger/sql/migrations/{path.name}" for path in migrations} <= set(names)


EVERYTHING = """
import importlib, pkgutil, sys
import worker
leaves = ("worker.demo", "worker.stack", "worker.testing", "worker.examples")
for module in pkgutil.walk_packages(worker.__path__, "worker."):
    if not module.name.startswith(leaves):
        importlib.import_module(module.name)
print(worker.__file__)
"""


def test_a_deployment_needs_no_package_but_the_image_s(installed: Installed) -> None:
    """Every module outside the demo, the local stack and the test kit can be imported where only the lock's are."""
    done = installed.run("python", "-c", EVERYTHING)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed.packages))
    assert not (installed.packages / "pytest").exists()


def test_whoever_runs_it_is_not_root_and_can_write_nothing(installed: Installed) -> None:
    assert installed.run("python", "-c", "import os; print(os.getuid())").stdout.strip() not in ("", "0")
    for place in (installed.packages, installed.packages / "worker", installed.folder):
        tried = installed.run("python", "-c", f"open({str(place / 'mine')!r}, 'w')")
        assert "PermissionError" in tried.stderr


async def test_check_and_run_with_handlers_of_another_package(installed: Installed, site: Site) -> None:
    topic = site.topic(2)
    await site.fetch("CREATE TABLE oncebox.shop (reference text)")
    site.produce(topic, [b'{"reference":"%d"}' % (n % 30) for n in range(90)])
    variables = {**site.environment, "SHOP_TOPIC": topic, "ONCEBOX_HTTP_PORT": "0"}

    checked = installed.run("oncebox", "check", "shop.orders", "--json", **variables)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    findings = {finding["subject"]: finding for finding in json.loads(checked.stdout)["checks"]}
    assert findings["handlers"]["detail"] == "record"

    ran = installed.run("oncebox", "run", "shop.orders", "--until-idle", **variables)
    assert ran.returncode == 0, ran.stderr
    rows = await site.fetch("SELECT count(*) AS n, count(DISTINCT reference) AS different FROM oncebox.shop")
    assert (rows[0]["n"], rows[0]["different"]) == (30, 30)
    assert await site.lag(topic) == 0
