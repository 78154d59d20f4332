import pytest

from xmtc.training.config import OptimizerConfig


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_rises_then_decays_to_the_final_share(schedule: str) -> None:
    config = OptimizerConfig(schedule=schedule, warmup_share=0.1, final_share=0.1)  # pyright: ignore[reportArgumentType]
    factors = [config.factor(step, 50) for step in range(50)]
    assert factors[:5] == sorted(factors[:5])
    assert factors[0] == pytest.approx(config.factor(0, 50))
    assert factors[0] == pytest.approx(0.2, rel=1e-6)
    if schedule == "constant":
        assert factors[5:] == [1.0] * 45
    else:
        assert factors[5:] == sorted(factors[5:], reverse=True)
        assert config.factor(50, 50) == pytest.approx(0.1)
