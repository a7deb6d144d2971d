"""Java and the jars of Apache Kafka: found, or fetched once by Maven into the user's cache."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from worker.errors import ServiceUnavailable
from worker.stack import folders
from worker.stack.process import Command, run
from worker.stack.service import Request

VERSION = "4.3.1"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_ADVICE = "install Java 17 or newer and Maven, or start Docker, or set KAFKA_BOOTSTRAP_SERVERS"


def java(request: Request) -> Path:
    """A Java that runs and is new enough for Kafka 4."""
    home = request.environment.get("JAVA_HOME")
    path = f"{home}/bin" if home else request.environment.get("PATH")
    program = shutil.which("java", path=path)
    if program is None:
        raise ServiceUnavailable("kafka", "Java was not found" + (f" in {path}" if home else ""), advice=_ADVICE)
    try:
        code, text = run(Command([program, "-version"], request.environment, Path("/")))
    except OSError as error:
        code, text = 1, str(error)
    major = re.search(r'version "(\d+)', text)
    if code != 0 or major is None:
        raise ServiceUnavailable("kafka", f"{program} does not work: {text.strip()[:200]}", advice=_ADVICE)
    if int(major[1]) < 17:
        raise ServiceUnavailable("kafka", f"{program} is Java {major[1]}, Kafka needs 17 or newer", advice=_ADVICE)
    return Path(program)


@dataclass(frozen=True)
class Programs:
    """What a local broker is made of."""

    java: Path
    jars: Path


def find(request: Request) -> Programs:
    """Java and the jars; ServiceUnavailable says which of them this machine lacks."""
    return Programs(java(request), jars(request))


def jars(request: Request) -> Path:
    """The folder of jars; the first call fetches them, and two first calls at once are harmless."""
    cache = folders.cache(request.environment)
    home = cache / f"kafka-{VERSION}"
    if home.is_dir():
        return home
    maven = shutil.which("mvn", path=request.environment.get("PATH"))
    if maven is None:
        raise ServiceUnavailable("kafka", "Maven (mvn) was not found, and it fetches Apache Kafka", advice=_ADVICE)
    with folders.workshop(cache) as work:
        _fetch(maven, work, request)
        try:
            # All or nothing: whoever sees the name sees every jar.
            (work / "libs").rename(home)
        except OSError:
            if not home.is_dir():  # else another process was faster, with the same jars
                raise
    return home


def _fetch(maven: str, work: Path, request: Request) -> None:
    request.say(f"kafka: fetching Apache Kafka {VERSION} with Maven, about 55 MB, once")
    # The pom is copied: Maven writes beside it when a plugin wants a build folder.
    pom = Path(shutil.copy(Path(__file__).with_name("pom.xml"), work))
    argv: list[str | Path] = [maven, "-B", "-f", pom, _COPY, f"-DoutputDirectory={work}/libs", "-DincludeScope=runtime"]
    if not (Path(request.environment.get("HOME") or Path.home()) / ".m2").is_dir():
        argv.append(f"-Dmaven.repo.local={work / 'repository'}")
    environment = {**request.environment, "MAVEN_OPTS": request.environment.get("MAVEN_OPTS", "") + " -XX:-UsePerfData"}
    code, text = run(Command(argv, environment, work), each_line=_progress(request))
    if code != 0 or not any((work / "libs").glob("kafka_2.13-*.jar")):
        errors = [line for line in text.splitlines() if "[ERROR]" in line][:3] or text.splitlines()[-3:]
        problem = "Maven could not fetch Apache Kafka:\n  " + "\n  ".join(errors)
        raise ServiceUnavailable("kafka", problem, advice=_ADVICE)


def _progress(request: Request) -> Callable[[str], None]:
    fetched = 0

    def count(line: str) -> None:
        nonlocal fetched
        if "Downloaded" in line and ".jar" in line:
            fetched += 1
            if fetched % 25 == 0:
                request.say(f"kafka: {fetched} jars so far")

    return count
