import pytest

from xmtc.training.config import OptimizerConfig


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_rises_then_decays_to_the_final_share(schedule: str) -> None:
    config = OptimizerConfig(schedule=schedule)  # pyright: ignore[reportArgumentType]
    factors = [config.factor(step, 100) for step in range(100)]
    assert factors[:5] == sorted(factors[:5])
    assert factors[0] == pytest.approx(0.2, rel=1e-6)
    assert factors[5:] == sorted(factors[5:], reverse=True)
    assert config.factor(100, 100) == pytest.approx(0.05)
