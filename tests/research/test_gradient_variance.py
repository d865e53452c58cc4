"""The study of gradients over the temperature: a narrow derivative has more variance and less bias."""

from research.studies.gradient_variance import TEMPERATURES, measure


def test_a_narrow_derivative_has_more_variance_and_less_bias():
    found = measure(seed=0, depth=2, batches=60, samples=200_000)
    assert len(found["hard"]) == len(found["soft"]) == len(TEMPERATURES)
    (_, narrow, close), *_, (_, wide, far) = found["soft"]
    assert narrow > 10 * wide
    assert far > close + 0.2
    sizes, _, _ = zip(*found["hard"], strict=True)
    assert list(sizes) == sorted(sizes, reverse=True)  # "larger eps: smaller gradients"
