"""Whether the keys that are claimed next are probably all new."""

LEAST = 1_000
MOST = 1_000_000


class Novelty:
    """A claim of keys that are all new costs Postgres a fifth less if nobody looks for other entries first.

    But then one key with an entry fails the whole statement, leaves dead rows, and the server logs an error. So it is
    expected only after a run of keys that were all won; and each time that was wrong, only after a run four times as
    long: where a few keys in a million are known, one statement in hundreds fails, not one in ten.
    """

    def __init__(self) -> None:
        self._run = 0
        self._needed = LEAST

    @property
    def expected(self) -> bool:
        return self._run >= self._needed

    def confirmed(self, keys: int) -> None:
        """So many keys more were won, and all that were offered with them."""
        self._run += keys

    def refuted(self) -> None:
        """A key had an entry already."""
        if self.expected:
            self._needed = min(self._needed * 4, MOST)
        self._run = 0
