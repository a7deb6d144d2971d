"""How a handler ends decides, and nothing else: spec by table."""

import pytest

from worker.rules.claims import TRANSITIONS, Blocks, Ending, Kind, State, after, after_death

DONE, FAILED, UNKNOWN = State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("ending", [Ending.RETURNED, Ending.REJECTED])
@pytest.mark.parametrize("entered", [0, 1])
def test_a_return_or_a_rejection_completes_wherever_it_comes_from(kind: Kind, ending: Ending, entered: int) -> None:
    assert after(kind, ending, Blocks(entered, 0)) is DONE


@pytest.mark.parametrize("kind", [Kind.TRANSACTIONAL, Kind.REPEATABLE])
@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.NOT_EXECUTED])
def test_what_can_run_again_is_tried_again(kind: Kind, ending: Ending) -> None:
    assert after(kind, ending, Blocks()) is FAILED
    assert after_death(kind) is FAILED


@pytest.mark.parametrize(
    ("ending", "blocks", "state"),
    [
        (Ending.FAILED, Blocks(0, 0), FAILED),
        (Ending.NOT_EXECUTED, Blocks(0, 0), FAILED),
        (Ending.FAILED, Blocks(1, 0), UNKNOWN),
        (Ending.FAILED, Blocks(1, 1), UNKNOWN),
        (Ending.NOT_EXECUTED, Blocks(1, 1), FAILED),
        (Ending.NOT_EXECUTED, Blocks(2, 1), UNKNOWN),
        (Ending.NOT_EXECUTED, Blocks(1, 0), UNKNOWN),
        (Ending.NOT_EXECUTED, Blocks(3, 3), FAILED),
    ],
)
def test_an_external_effect_needs_proof_that_nothing_happened(ending: Ending, blocks: Blocks, state: State) -> None:
    assert after(Kind.EXTERNAL, ending, blocks) is state


def test_a_dead_process_proves_nothing() -> None:
    assert after_death(Kind.EXTERNAL) is UNKNOWN


def test_completed_is_immutable() -> None:
    assert {new for old, new in TRANSITIONS if old is State.COMPLETED} == {None}
