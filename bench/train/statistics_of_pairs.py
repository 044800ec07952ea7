# SPDX-License-Identifier: Apache-2.0
"""Medians of paired ratios with a 95 % bootstrap interval; the same numbers at every call."""

import random
import statistics


def median_interval(values, draws=2000, level=0.95):
    """(median, lower, upper) of the median of `values`, by resampling with a fixed seed."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    edge = int(draws * (1 - level) / 2)
    return statistics.median(values), medians[edge], medians[-1 - edge]
