import numpy as np
import pytest

from xmtc.data.sampler import Sampler, Step, evaluation_batches
from xmtc.errors import DataError

LENGTHS = np.random.default_rng(0).integers(1, 300, size=1003)


def sampler(rank: int = 0, world_size: int = 1, **settings) -> Sampler:
    defaults = {"batch_size": 16, "tokens_per_micro_batch": 900, "seed": 5}
    return Sampler(LENGTHS, **(defaults | settings), rank=rank, world_size=world_size)


def real(step: Step) -> list[int]:
    return [
        int(d)
        for batch in step.micro_batches
        for d in batch.documents[batch.weights > 0]
    ]


@pytest.mark.parametrize("world_size", [1, 2, 4, 7])
def test_every_document_once_in_the_same_steps_at_any_world_size(world_size):
    alone = [sorted(real(step)) for step in sampler().epoch(3)]
    ranks = [list(sampler(rank, world_size).epoch(3)) for rank in range(world_size)]
    together = [
        sorted(document for step in steps for document in real(step))
        for steps in zip(*ranks, strict=True)
    ]
    assert together == alone
    assert sorted(document for documents in together for document in documents) == list(
        range(len(LENGTHS))
    )
    assert len(alone) == sampler().steps_per_epoch
    for steps in zip(*ranks, strict=True):
        assert len({len(step.micro_batches) for step in steps}) == 1
        assert {step.documents for step in steps} == {
            sum(len(real(step)) for step in steps)
        }
        assert len({step.consumed for step in steps}) == 1


def test_micro_batches_keep_to_the_budget():
    for step in sampler(world_size=2, rank=1).epoch(0):
        for batch in step.micro_batches:
            lengths = LENGTHS[batch.documents]
            assert len(lengths) == 1 or lengths.max() * len(lengths) <= 900
            assert set(batch.weights) in ({0.0}, {1.0})


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed: int, epoch: int) -> list[int]:
        return [
            document
            for step in sampler(seed=seed).epoch(epoch)
            for document in real(step)
        ]

    assert order(5, 0) == order(5, 0)
    assert order(5, 0) != order(5, 1)
    assert order(5, 0) != order(6, 0)
    first_steps = [
        len(set(LENGTHS[real(step)])) for step in list(sampler().epoch(0))[:5]
    ]
    assert max(first_steps) > 1


@pytest.mark.parametrize("world_size", [1, 3])
def test_resume_is_exact_at_another_world_size(world_size):
    whole = list(sampler(1 % world_size, world_size).epoch(2))
    stopped = list(sampler().epoch(2))[20]
    rest = list(sampler(1 % world_size, world_size).epoch(2, stopped.consumed))
    assert [step.consumed for step in rest] == [step.consumed for step in whole[21:]]
    for resumed, uninterrupted in zip(rest, whole[21:], strict=True):
        for a, b in zip(
            resumed.micro_batches, uninterrupted.micro_batches, strict=True
        ):
            np.testing.assert_array_equal(a.documents, b.documents)
            np.testing.assert_array_equal(a.weights, b.weights)
    assert list(sampler().epoch(2, len(LENGTHS))) == []
    with pytest.raises(DataError, match="another batch_size than 16"):
        list(sampler().epoch(2, stopped.consumed + 1))


def test_fewer_documents_than_ranks():
    ranks = [
        list(
            Sampler(
                LENGTHS[:2],
                batch_size=8,
                tokens_per_micro_batch=512,
                seed=0,
                rank=r,
                world_size=4,
            ).epoch(0)
        )
        for r in range(4)
    ]
    assert sorted(document for steps in ranks for document in real(steps[0])) == [0, 1]
    assert all(
        len(steps[0].micro_batches) == 1 and steps[0].documents == 2 for steps in ranks
    )


def test_batches_hold_documents_of_similar_length():
    one = sampler()
    padded = sum(
        int(LENGTHS[batch.documents].max()) * len(batch.documents)
        for s in one.epoch(1)
        for batch in s.micro_batches
    )
    assert 1 - LENGTHS.sum() / padded < 0.1


def test_evaluation_batches_longest_first():
    batches = evaluation_batches(LENGTHS, 900)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))
    longest = [LENGTHS[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)
    assert all(
        len(batch) == 1 or LENGTHS[batch].max() * len(batch) <= 900 for batch in batches
    )
    assert evaluation_batches(LENGTHS[:0], 900) == []


def test_refuses_an_empty_split():
    with pytest.raises(DataError, match="no documents"):
        Sampler(LENGTHS[:0], batch_size=1, tokens_per_micro_batch=1, seed=0)
