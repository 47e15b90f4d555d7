"""Selection of the batches of a sample, and its thinning."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.estimate.watched_sample import SampleLimits, WatchedSample
from cordwood.cleanup.plan.key_secrets import Secrets

SECRETS = Secrets.from_seed(1).words


def sample_with(level: int, *, seed: int = 5, limits: SampleLimits | None = None) -> WatchedSample:
    sample = WatchedSample(seed=seed, secrets=SECRETS, limits=limits or SampleLimits())
    sample.level = level
    return sample


@given(
    sizes=st.lists(st.integers(61, 5_000), min_size=1, max_size=60),
    start=st.integers(0, 1 << 40),
    level=st.integers(8, 16),
    seed=st.integers(0, 1 << 64),
)
def test_what_is_left_of_all_batches_is_what_a_higher_level_takes(
    sizes: list[int], start: int, level: int, seed: int
) -> None:
    """So a sample does not depend on when it was thinned."""
    every = sample_with(0, seed=seed).levels_of(start, np.array(sizes))
    taken = sample_with(level, seed=seed).levels_of(start, np.array(sizes))
    assert (every >= 0).all()
    assert np.where(every >= level, every, -1).tolist() == taken.tolist()


@given(
    sizes=st.lists(st.integers(61, 5_000), min_size=2, max_size=60),
    cut=st.integers(1, 59),
    level=st.integers(8, 14),
)
def test_levels_do_not_depend_on_the_blocks_that_are_read(
    sizes: list[int], cut: int, level: int
) -> None:
    cut = min(cut, len(sizes) - 1)
    sample = sample_with(level)
    first = sample.levels_of(0, np.array(sizes[:cut]))
    rest = sample.levels_of(sum(sizes[:cut]), np.array(sizes[cut:]))
    assert [*first.tolist(), *rest.tolist()] == sample.levels_of(0, np.array(sizes)).tolist()


def test_a_batch_is_sampled_as_often_as_it_is_large() -> None:
    sizes = np.array([100, 400, 2_000, 1_500] * 1_000)
    found = np.zeros(4)
    for seed in range(20):
        levels = sample_with(12, seed=seed).levels_of(0, sizes)
        found += (levels >= 0).reshape(-1, 4).sum(axis=0)
    shares = found / (20 * 1_000) / (sizes[:4] / 4_096)
    assert np.abs(shares - 1).max() < 0.12
