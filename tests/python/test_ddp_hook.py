# SPDX-License-Identifier: Apache-2.0
"""thinwire.ddp_hook under PyTorch's own wrapper, on two rank processes over Gloo."""

import pytest

import ranks

FORMS = ["none", "cast{f16}", "ef|topk{ratio=0.05}", "ef|powersgd{rank=2}", "ef|sign", "qsgd{bits=4}"]


@pytest.mark.parametrize("form, bucket_mb", [(form, 25) for form in FORMS] +
                         [("ef|powersgd{rank=1}", 0.02), ("ef|topk{ratio=0.05}", 0.02), ("cast{f16}", 0.02)])
def test_forms(form, bucket_mb):
    a, b = ranks.run("torch_ddp", form=form, bucket_mb=bucket_mb)
    assert a["whole"] == b["whole"], "replicas stay identical"
    assert a["resumed"] == b["resumed"] and a["steps"] == 6
    # DDP wrapped anew has other buckets in its first step, in another order: most forms look at a bucket as a whole,
    # and qsgd draws by position.
    if form in ("none", "cast{f16}") or (bucket_mb == 25 and not form.startswith("qsgd")):
        assert a["resumed"] == a["whole"], "a pickled state goes on bit for bit"
    if form == "none":
        assert a["whole"] == a["plain"], "bit for bit"
    else:
        assert a["whole"] != a["plain"], "something has been compressed"
    # In one bucket the values, and the order in which ranks are added, are those of our own wrapper.
    if bucket_mb == 25 and form in ("none", "cast{f16}", "ef|topk{ratio=0.05}", "ef|sign"):
        assert a["whole"] == a["ours"]
    assert (a["kept"] > 0) == form.startswith("ef|")


def test_nothing_is_lost_where_buckets_are_made_anew():
    for rank in ranks.run("torch_ddp_keeps_all"):
        assert rank["off"] < 1e-6
        assert rank["entries"] == [8] * 5, "one residual a parameter, of whatever buckets"
        assert rank["nan"] and rank["moved"] < 1e-8, "memories undo a step to rounding"


def test_refusals():
    for texts in ranks.run("torch_ddp_refuses"):
        assert "DistributedDataParallel, got a Sequential" in texts[0]
        assert "unknown codec 'topq'" in texts[1] and "topk" in texts[1]
        assert "unknown memory 'eff'" in texts[2]
        assert "ratio must be in (0, 1], got 2" in texts[3]
        assert "attach(ddp)" in texts[4]
