"""`oncebox migrate`."""

from worker.cli.options import Config


def migrate(config: Config = None) -> None:
    """Bring the database schema to this version; safe beside running workers, and to repeat."""
    import asyncio

    from worker.settings import load_settings

    settings = load_settings(config)

    from worker.ledger.migrate import migrate as bring_up

    for step in asyncio.run(bring_up(settings.database)):
        print(f"applied {step.number:04d} {step.name}")
    print(f"schema {settings.database.schema_name} is up to date")
