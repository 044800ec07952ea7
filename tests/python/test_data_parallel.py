# SPDX-License-Identifier: Apache-2.0
"""thinwire.DataParallel on two rank processes, against one process on the joined batch."""

import pytest

import ranks
import scenarios


def close(a, b, tolerance=1e-5):
    return all(abs(x - y) <= tolerance for p, q in zip(a, b) for x, y in zip(p, q))


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_equals_joined_batch(set_to_none, optimizer):
    a, b = ranks.run("train", set_to_none=set_to_none, optimizer=optimizer)
    assert a["parameters"] == b["parameters"]
    assert close(a["parameters"], scenarios.joined(optimizer=optimizer))


def test_starts_from_rank_0():
    a, b = ranks.run("train", model_seed_by_rank=True)
    assert a["parameters"] == b["parameters"]
    assert close(a["parameters"], scenarios.joined())


def test_accumulates():
    a, b = ranks.run("train", accumulate=3)
    assert a["parameters"] == b["parameters"]
    assert close(a["parameters"], scenarios.joined(accumulate=3))


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_compile(where):
    a, b = ranks.run("train", compile=where, timeout=120)
    assert a["parameters"] == b["parameters"]
    assert close(a["parameters"], scenarios.joined())


def test_front():
    for result in ranks.run("front"):
        assert result["keys"] == result["plain_keys"]
        assert result["note"] == "mine"
        assert result["hook_calls"] == 1
        assert result["names"][0] == "0.weight"
        assert result["twin_equal"] and result["twin_own"]
        assert result["step"]["wire_bytes"] > 0


def test_arguments():
    for texts in ranks.run("arguments"):
        assert all(texts.values()), texts
        assert "autocast" in texts["mixed_precision"]
        assert "find_unused_parameters" in texts["find_unused_paramters"]
        assert "at least 1" in texts["accumulate"]
        assert "'none'" in texts["form"] and "size_cap" in texts["grouping"]


def test_KF11_uneven_batches():
    assert ranks.run("uneven") == [[-2, -4, -6, -7, -8]] * 2


def test_KF11_weighted_by_samples():
    for gradient in ranks.run("weighted"):
        assert abs(gradient - 13 / 3) <= 1e-6


def test_KF11_bare_loop_names_the_rank():
    a, _ = ranks.run("bare_loop_stops", environment={"THINWIRE_TIMEOUT": "2"})
    assert "rank 1" in a and "all_reduce" in a


def test_interrupt_acts_within_a_second():
    done = ranks.finish(ranks.start("interrupted"))
    assert done[0].code == 0, done[0].output
    assert 0 <= done[0].result < 1


def test_gil_is_released():
    assert ranks.run("gil")[0] > 100


def test_KF55_average():
    assert ranks.run("quick_average", timeout=30) == [[True] * 10] * 2


def test_the_callers_process_group_is_refused_in_words():
    for text in ranks.run("over_process_group"):
        assert "process_group" in text and "torchrun" in text


def test_refused_in_words():
    for texts in ranks.run("refused"):
        assert "sparse" in texts["sparse"] and "weight" in texts["sparse"]
