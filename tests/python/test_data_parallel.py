# SPDX-License-Identifier: Apache-2.0
"""thinwire.DataParallel on two rank processes, against one process on the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_algorithms_agree():
    results = [ranks.run("train", algorithm=name)[0] for name in ("direct", "gather", "shard")]
    assert results[0] == results[1] == results[2]


def test_an_order_that_ranks_agree_on():
    a, b = ranks.run("train", grouping="wfbp", order="agreed")
    assert a["parameters"] == b["parameters"] == ranks.run("train", grouping="wfbp")[0]["parameters"]


def test_covap():
    a, b = ranks.run("train", grouping="covap{interval=2,bytes=100,first=100}", form="ef{schedule=ramp}|none")
    assert a["parameters"] == b["parameters"] != scenarios.joined()


@pytest.mark.parametrize("form", ["ef|topk{ratio=0.1}", "ef|powersgd{rank=2}", "ef|sign", "cast{f16}", "qsgd{bits=4}"])
def test_forms_go_on_from_a_file(form, tmp_path):
    a, b = ranks.run("forms", form=form, path=str(tmp_path / "state.pt"))
    assert a["whole"] == b["whole"] and a["resumed"] == b["resumed"] and a["changed"] == b["changed"]
    assert a["whole"] == a["resumed"], "bit for bit"
    assert a["payload"] < a["dense"]
    assert b["keys"] == [] and "all/step" in a["keys"]
    assert not form.startswith("ef|") or any(key.startswith("rank1/gradient/ef/residual/") for key in a["keys"])


def test_plan_auto_is_chosen_from_the_first_steps():
    a, b = ranks.run("chosen", forms=["ef|topk{ratio=0.01}"])
    assert a["before"] is None
    assert a["choice"]["chosen"]["form"] == "ef|topk{ratio=0.01}" and "topk" in a["choice"]["verdict"]
    assert a["parameters"] == b["parameters"] != a["plain"]
    assert a["bytes"][1] == a["bytes"][7] > 5 * a["bytes"][9] > 0
    assert any("measuring the links" in text for text in a["said"]) and any("Send ef|topk" in text for text in a["said"])
    assert not b["said"], "rank 0 speaks for all"


def test_plan_auto_of_the_same_mathematics():
    a, b = ranks.run("chosen")
    assert a["choice"]["chosen"]["form"] == "none"
    assert a["parameters"] == b["parameters"] == a["plain"], "bit for bit"


def test_plan_auto_where_only_each_second_backward_exchanges():
    a, b = ranks.run("chosen", accumulate=2)
    assert a["choice"]["chosen"]["messages"] > 0
    assert a["parameters"] == b["parameters"] == a["plain"], "bit for bit"


def test_plan_auto_of_a_model_that_changes():
    a, b = ranks.run("chosen", quality="same", freeze_at=10)
    assert a["parameters"] == b["parameters"] == a["plain"]
    assert a["choice"] is None, "measured anew"


def test_plan_auto_and_what_contradicts_it():
    for texts in ranks.run("contradictions"):
        assert all(texts), texts
        for text, word in zip(texts, ["forms=", "grouping", "bounded", "some.json", "give one", "topk", "algorithm"]):
            assert word in text, text


def test_ranks_with_other_vector_instructions():
    forms = ["cast{f16}", "cast{bf16}", "qsgd{bits=4}", "ef|sign", "ef|topk{ratio=0.05}", "ef|powersgd{rank=2}"]
    a, b = ranks.run("other_instructions", forms=forms)
    for form in forms:
        assert a[form]["parameters"] == b[form]["parameters"], form
        mine, theirs = a[form]["kept"]
        assert mine == theirs, f"{form}: the same gradients leave the same behind"
        assert bool(mine) == form.startswith("ef|")


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
    a, b = ranks.run("train", compile=where)
    assert a["parameters"] == b["parameters"]
    assert close(a["parameters"], scenarios.joined())


def test_autocast_to_bfloat16():
    a, b = ranks.run("autocast")
    assert a["parameters"] == b["parameters"]
    assert a["dtypes"] == ["torch.bfloat16", "torch.float32"], "outputs in bf16, gradients in the parameters' type"
    assert a["equal"] == b["equal"] == [True, True, True]


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
        assert "batches" in texts["join"] and "form=" in texts["register_comm_hook"]
        assert "CPU" in texts["device_ids"] and "torch.distributed" in texts["process_group"]
        assert "'none'" in texts["form"] and "size_cap" in texts["grouping"]
        assert "'ring'" in texts["algorithm"] and "gather" in texts["algorithm"]
        assert "none.json" in texts["plan"]


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
    assert ranks.run("quick_average") == [[True] * 10] * 2


@pytest.mark.parametrize("how", ["init", "argument"])
@pytest.mark.parametrize("count", [2, 3])
def test_over_the_callers_process_group(how, count):
    results = ranks.run("over_process_group", ranks=count, how=how, again=how == "init")
    for result in results:
        assert result["ranks"] == count
        assert result["parameters"] == results[0]["parameters"]
        assert result["own_sum"] == [count] * 3
    assert close(results[0]["parameters"], scenarios.joined(ranks=count))


def test_over_a_part_of_the_callers_world():
    outside, a, b = ranks.run("over_part_of_the_world", ranks=3)
    assert "no member" in outside
    assert [a["rank"], b["rank"]] == [0, 1]
    assert a["same_group"] and a["parameters"] == b["parameters"]
    assert close(a["parameters"], scenarios.joined())


def test_refused_in_words():
    for texts in ranks.run("refused"):
        assert "sparse" in texts["sparse"] and "weight" in texts["sparse"]
        assert "create_graph" in texts["create_graph"]


def test_under_another_torch_it_says_so_in_one_sentence(tmp_path):
    package = tmp_path / "thinwire"
    package.mkdir()
    for file in (Path(os.environ["TW_BUILD"]) / "python" / "thinwire").iterdir():
        if file.name != "_build.py" and file.is_file():
            (package / file.name).symlink_to(file.resolve())
    (package / "_build.py").write_text('torch_version = "1.99.0"\n')
    done = subprocess.run([sys.executable, "-c", "import thinwire"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: thinwire was built for torch 1.99.0"), done.stderr
    assert "pip install" in last
