"""The verdicts on the paper's claims."""

import pytest

from paper_runs import made_up
from research.paper import verdicts
from research.paper.judgement import Ruling, compared, corrected, together
from research.paper.published import ULTRA
from research.paper.results import Results
from research.paper.statistics import Interval
from research.paper.verdicts import CLAIMS, judge


def verdict(results, words):
    (found,) = [v for v in judge(results) if words in v.claim]
    return found


class TestVerdicts:
    @pytest.mark.parametrize(
        ("over", "expected"), [(5, "holds"), (20, "holds weaker"), (40, "does not hold")]
    )
    def test_the_cost_of_log_sum_exp_is_judged_by_the_gpu(self, over, expected, monkeypatch):
        monkeypatch.setattr(verdicts, "_on_gpu", lambda: {"called": [over, over], "device": [0.0]})
        fused = {"LIF": 10.0, **dict.fromkeys(ULTRA, 10.0 + over / 10)}
        plain = {"LIF": 10.0, **dict.fromkeys(ULTRA, 99.0)}  # the plain loop is shown, and judged by nobody
        results = Results(step_ms={"T=10 auto": fused, "T=10 reference": plain})
        (found,) = (v for v in judge(results) if v.claim.startswith("log-sum-exp adds"))
        assert found.verdict == expected and f"T=10 fused: +{over} to +{over} %" in found.measured
        assert f"called: +{over} to +{over} %" in found.measured

    def test_nothing_is_judged_without_runs(self):
        assert {v.verdict for v in judge(Results())} == {"not tested"}
        assert len(CLAIMS) > 25 and len({claim.text for claim in CLAIMS}) == len(CLAIMS)

    @pytest.mark.parametrize(
        ("gain", "expected"), [(3.0, "holds"), (1.5, "holds weaker"), (-1.0, "does not hold")]
    )
    def test_a_gain_is_compared_with_the_published_one(self, gain, expected):
        results = made_up(
            lambda c: c.seed + (gain if c.neuron == "UltraDLIF" else 0 if "Ultra" not in c.neuron else -3),
            tables=["cifar10"],
        )
        assert verdict(results, "cifar10, T=1: the best Ultra neuron is +3.01").verdict == expected

    def test_noise_does_not_hold(self):
        noise = {42: 1.0, 43: -1.2, 44: 0.5}
        results = made_up(
            lambda c: 95 + (noise[c.seed] if c.neuron == "UltraDLIF" else -9 if "Ultra" in c.neuron else 0)
        )
        assert verdict(results, "mnist, T=1: the best Ultra neuron is +0.09").verdict == "inconclusive"

    def test_one_seed_decides_nothing(self):
        results = made_up(lambda c: 95.0 + (c.neuron == "UltraDLIF"), seeds=1)
        assert verdict(results, "mnist, T=1: the best Ultra neuron is +0.09").verdict == "inconclusive"

    @pytest.mark.parametrize(
        ("noise", "loss", "expected"),
        [(0.1, 0.1, "holds"), (1.5, 0.1, "inconclusive"), (0.1, 2.0, "does not hold")],
    )
    def test_noise_does_not_help_to_show_no_loss(self, noise, loss, expected):
        """The wider the interval, the harder it is to exclude a loss."""
        wave = {42: noise, 43: -noise, 44: 0.0}
        results = made_up(
            lambda c: 95.0 + (wave[c.seed] - loss if c.sparsity == 0.1 else 0.0),
            rate=lambda c: 0.2 if c.sparsity == 0.1 else 0.4,
        )
        assert verdict(results, "mnist, T=1: lambda=0.1 cuts UltraDLIF").verdict == expected

    def test_both_readings_are_judged(self):
        results = made_up(
            lambda c: 95.0 + 0.01 * c.seed + c.neuron.endswith("UltraDLIF") * (1 if c.track_test else -1),
            tables=("mnist", "released-mnist"),
        )
        found = verdict(results, "mnist, T=1: the best Ultra neuron is +0.09")
        assert (found.verdict, found.released) == ("does not hold", "holds")

    @pytest.mark.parametrize(
        ("mean", "half", "expected"),
        [(0.1, 0.5, "does not hold"), (1, 4, "inconclusive")],
    )
    def test_a_gain_that_may_be_none_must_reach_the_published_one(self, mean, half, expected):
        assert compared(Interval(mean, half, 5, 0.01), 4.0) == expected

    def test_a_small_gain_that_may_be_chance_does_not_hold(self):
        found = [Ruling("holds weaker", "", p, "does not hold") for p in (0.03, 0.04)]
        assert [each.verdict for each in corrected(found)] == ["does not hold"] * 2

    @pytest.mark.parametrize(
        ("sure", "expected"), [(1, "inconclusive"), (2, "inconclusive"), (3, "holds weaker"), (4, "holds")]
    )
    def test_many_gains_must_be_there_for_a_claim_about_all(self, sure, expected):
        parts = [(str(n), Interval(1.0, 0.5, 5, 0.001 if n < sure else 0.9)) for n in range(4)]
        assert together(parts, "better").verdict == expected

    @pytest.mark.parametrize(
        ("after", "expected"), [(0.24, "holds"), (0.3, "holds weaker"), (0.39, "does not hold")]
    )
    def test_the_penalty_must_cut_spikes(self, after, expected):
        results = made_up(lambda c: 95.0, rate=lambda c: after if c.sparsity == 0.1 else 0.4)
        assert verdict(results, "mnist, T=1: lambda=0.1 cuts UltraDLIF").verdict == expected

    def test_the_penalty_must_not_cost_accuracy(self):
        results = made_up(
            lambda c: 95.0 - 2 * (c.sparsity == 0.1), rate=lambda c: 0.2 if c.sparsity == 0.1 else 0.4
        )
        assert verdict(results, "mnist, T=1: lambda=0.1 cuts UltraDLIF").verdict == "does not hold"

    def test_the_temperature(self):
        wide = made_up(lambda c: 95 + (c.neuron_options.get("eps") == 2.0), eps=0.15, path=[1.0, 0.4, 0.15])
        assert verdict(wide, "a learned temperature beats").verdict == "does not hold"
        assert verdict(wide, "learned temperatures end between").verdict == "does not hold"
        assert verdict(wide, "falls to about 0.42").verdict == "does not hold"
        assert verdict(wide, "eps of 0.5 beats 2.0").verdict == "does not hold"
        learned = made_up(
            lambda c: (
                95 + c.neuron_options.get("learn_eps", True) + 0.5 * (c.neuron_options.get("eps") == 0.5)
            ),
            eps=0.8,
            path=[1.0, 0.42, 0.8],
        )
        for words in (
            "a learned temperature beats",
            "temperatures end between",
            "falls to about 0.42",
            "eps of 0.5 beats",
        ):
            assert verdict(learned, words).verdict == "holds"
