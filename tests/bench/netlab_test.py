# SPDX-License-Identifier: Apache-2.0
"""The network lab: links of the rate asked for, ranks that find each other, nothing left behind."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import pytest

NETLAB = os.path.join(os.environ.get("TW_SOURCE", os.path.join(os.path.dirname(__file__), "..", "..")), "bench", "netlab")
RECEIVE = """
import os, socket, sys, time
rank, folder = int(os.environ["THINWIRE_RANK"]), sys.argv[1]
address = (os.environ["MASTER_ADDR"], 7000)
if rank == 0:
    listener = socket.create_server(address)
    open(folder + "/ready", "w").close()
    peer = listener.accept()[0]
    while peer.recv(1) != b"#": pass
    time.sleep(0.3)
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < 1: count += len(peer.recv(1 << 16))
    print("bits", 8 * count / (time.monotonic() - begin))
else:
    while not os.path.exists(folder + "/changed"): time.sleep(0.05)
    peer = socket.create_connection(address)
    peer.sendall(b"#")
    try:
        while True: peer.sendall(bytes(1 << 16))
    except OSError: pass
"""


ECHO = """
import hashlib, os, socket, time
rank, address = int(os.environ["THINWIRE_RANK"]), (os.environ["MASTER_ADDR"], 7001)
data = hashlib.shake_256(b"netlab").digest(4 << 20)
if rank == 0:
    peer = socket.create_server(address).accept()[0]
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(20): peer.sendall(peer.recv(1))
    peer.sendall(data)
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError: time.sleep(0.05)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(20):
        begin = time.monotonic()
        peer.sendall(b"x"); peer.recv(1)
        times.append(time.monotonic() - begin)
    print("round trip", 1000 * min(times))
    got = b""
    while (part := peer.recv(1 << 20)): got += part
    print("same bytes", got == data)
"""


def netlab(*arguments, timeout=120):
    return subprocess.run([NETLAB, *arguments], capture_output=True, text=True, timeout=timeout)


def namespaces_missing():
    done = netlab("1", "none", "--", "true")
    return done.stderr.strip() if done.returncode == 2 else ""


@pytest.fixture(scope="module", autouse=True)
def _needs_namespaces():
    if (reason := namespaces_missing()):
        pytest.skip("no network lab here: " + reason)


def processes_with(token):
    """Ids of the processes whose command line holds the token, seen from outside the lab."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if token.encode() in words and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.05)


def test_ranks_get_their_environment_labels_and_the_first_exit_code():
    done = netlab("2", "100mbit", "--", "sh", "-c",
                  'echo $THINWIRE_RANK/$THINWIRE_SIZE $THINWIRE_ADDRESS $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT; '
                  'echo id $THINWIRE_RUN_ID; exit $((RANK * 7))')
    lines = done.stdout.splitlines()
    for rank in (0, 1):
        assert f"[{rank}] {rank}/2 10.77.0.1:29400 {rank}/2 10.77.0.1:29500" in lines
    assert len({line.split()[-1] for line in lines if " id " in line}) == 1
    assert done.returncode == 7
    assert "rank 1 ended with exit code 7" in done.stderr
    assert re.search(r"congestion control \w+; .*; (torch \S+, BLAS|no torch).*; load [\d.]+", done.stderr), done.stderr


@pytest.mark.parametrize("qdisc", ["tbf", "htb"])
def test_links_carry_the_rate_asked_for_and_no_more(qdisc):
    done = netlab("2", "100mbit", "--qdisc", qdisc, "--", "true")
    assert done.returncode == 0, done.stderr
    measured = [float(x) for x in re.search(r"measured ([\d.]+) Mbit/s and ([\d.]+) Mbit/s", done.stderr).groups()]
    # TCP carries at most 1448 of a packet's 1514 bytes; the lower side leaves room for a busy machine.
    assert all(80 <= rate <= 97 for rate in measured), done.stderr


@pytest.mark.parametrize("rate, delay, share", [("100mbit", 20, 0.75), ("1gbit", 2, 0.5)])
def test_the_delay_is_that_asked_for_and_frames_arrive_whole(rate, delay, share):
    done = netlab("2", rate, "--delay", str(delay), "--output", "1", "--", sys.executable, "-c", ECHO)
    if "/dev/net/tun" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "same bytes True" in done.stdout
    # Never less than twice the delay; what a busy machine adds to the best of twenty is small.
    round_trip = float(re.search(r"round trip ([\d.]+)", done.stdout)[1])
    assert 2 * delay <= round_trip <= 2.25 * delay + 1, round_trip
    said = float(re.search(r"delay %d ms: a ping takes ([\d.]+) ms" % delay, done.stderr)[1])
    assert said >= 2 * delay, done.stderr
    asked = {"100mbit": 100e6, "1gbit": 1e9}[rate]
    for number, unit in re.findall(r"([\d.]+) ([MG])bit/s(?= and|, delay)", done.stderr):
        assert share * asked <= float(number) * {"M": 1e6, "G": 1e9}[unit] <= 0.97 * asked, done.stderr


def test_output_of_one_rank_can_be_had_plain():
    done = netlab("2", "none", "--output", "1", "--", "sh", "-c", "echo from $RANK")
    assert done.stdout == "from 1\n"
    assert "[0] from 0" in done.stderr


def test_the_rate_changes_while_it_runs(tmp_path):
    lab = subprocess.Popen([NETLAB, "2", "100mbit", "--", sys.executable, "-c", RECEIVE, str(tmp_path)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until((tmp_path / "ready").exists, 60)
        changed = netlab("rate", "20mbit")
        assert changed.returncode == 0, changed.stderr
        assert "2 links now at 20 Mbit/s" in changed.stderr
        (tmp_path / "changed").touch()
        out, err = lab.communicate(timeout=60)
    finally:
        lab.kill()
    assert lab.returncode == 0, err
    rate = float(re.search(r"bits ([\d.]+)", out)[1])
    assert 15e6 <= rate <= 22e6, rate


def test_nothing_is_left_after_kill_9(tmp_path):
    token = "token-" + uuid.uuid4().hex
    code = "import os, sys, time; open(sys.argv[2] + '/' + os.environ['RANK'], 'w').close(); time.sleep(600)"
    lab = subprocess.Popen([NETLAB, "2", "none", "--", sys.executable, "-c", code, token, str(tmp_path)],
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists(), 60)
    assert len(processes_with(token)) >= 3  # the front end and two ranks
    lab.kill()
    lab.wait()
    wait_until(lambda: not processes_with(token))
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert "p0@" not in links and "bridge:" not in links
    assert netlab("rate", "1mbit").returncode == 2  # no lab is running
    assert netlab("2", "none", "--", "true").returncode == 0


def test_a_signal_reaches_each_rank_once(tmp_path):
    code = ("import os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *a: (print('got one', flush=True), time.sleep(0.5), sys.exit(5)))\n"
            "open(sys.argv[1] + '/' + os.environ['RANK'], 'w').close()\n"
            "while True: signal.pause()")
    lab = subprocess.Popen([NETLAB, "2", "none", "--", sys.executable, "-c", code, str(tmp_path)],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists(), 60)
    lab.send_signal(signal.SIGTERM)
    out, _ = lab.communicate(timeout=30)
    assert sorted(out.splitlines()) == ["[0] got one", "[1] got one"]
    assert lab.returncode == 5


def test_the_doctor_finds_the_rate_of_the_links():
    tool = os.path.join(os.environ.get("TW_BUILD", ""), "bin", "thinwire")
    if not os.path.exists(tool):
        pytest.skip("thinwire is not built")
    for rate, code in (("50mbit", 0), ("200mbit", 3)):
        done = netlab("2", "50mbit", "--output", "0", "--", tool, "doctor", "--json", "--timeout", "30", "--rate", rate)
        assert done.returncode == code, done.stderr
        links = json.loads(done.stdout)["links"]
        assert [(link["from"], link["to"]) for link in links] == [(0, 1), (1, 0)]
        assert all(40e6 <= 8 * link["bytes_per_s"] <= 50e6 for link in links), links


@pytest.mark.parametrize("arguments, words", [
    (["2", "fast", "--", "true"], "got 'fast'"),
    (["2", "100mbit"], "a command is missing"),
    (["0", "100mbit", "--", "true"], "N must be 1 to 200, got 0"),
    (["2", "100mbit", "--delay", "0", "--", "true"], "delay must be 0.1 to 500 ms, got 0"),
    (["2", "10gbit", "--delay", "5", "--", "true"], "at most 1 Gbit/s, got 10 Gbit/s"),
    (["2", "none", "--delay", "5", "--", "true"], "at most 1 Gbit/s, got no limit"),
    (["2", "100mbit", "--output", "2", "--", "true"], "a rank below 2, got '2'"),
    (["2", "none", "--congestion", "nonesuch", "--", "true"], "got 'nonesuch'"),
    (["rate", "100mbit"], "no lab is running"),
])
def test_wrong_use_is_refused_in_a_sentence(arguments, words):
    done = netlab(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests already run without root")
def test_it_needs_no_root_where_users_may_make_namespaces():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copy(NETLAB, folder)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if subprocess.run([*user, "unshare", "-Urn", "true"], capture_output=True).returncode:
            done = subprocess.run([*user, "/usr/bin/python3", copy, "2", "none", "--", "true"], capture_output=True, text=True)
            assert done.returncode == 2 and "allow user namespaces" in done.stderr
            pytest.skip("this kernel gives users no namespaces")
        done = subprocess.run([*user, "/usr/bin/python3", copy, "2", "50mbit", "--", "sh", "-c", "echo $RANK"],
                              capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "1", "[0]", "[1]"]
    measured = [float(x) for x in re.search(r"measured ([\d.]+) Mbit/s and ([\d.]+) Mbit/s", done.stderr).groups()]
    assert all(40 <= rate <= 48.5 for rate in measured), done.stderr


class Lines:
    """The lines that a process writes, as they come."""

    def __init__(self, stream):
        self.seen = []
        self.grown = threading.Condition()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            with self.grown:
                self.seen.append(line.rstrip("\n"))
                self.grown.notify_all()

    def wait(self, words, seconds, after=0):
        """The number of the first line from `after` on that holds the words."""
        def found():
            return next((i for i in range(after, len(self.seen)) if words in self.seen[i]), None)
        with self.grown:
            assert self.grown.wait_for(lambda: found() is not None, seconds), (words, self.seen)
            return found()


def test_a_training_changes_its_plan_when_the_link_does(tmp_path):
    tool = os.path.join(os.environ.get("TW_BUILD", ""), "bin", "thinwire")
    if not os.path.exists(tool):
        pytest.skip("thinwire is not built")
    # A batch that computes for one or two tenths of a second: whole gradients hide behind it at 10 Gbit/s, not at 200 Mbit/s.
    lab = subprocess.Popen([NETLAB, "2", "10gbit", "--output", "0", "--", tool, "train", "model=mlp{sizes=784-512-512-10}",
                            "data=synthetic{shape=1x28x28,train=16384}", "optimizer=sgd{momentum=0}", "learning_rate=0.01",
                            "schedule=constant", "batch_size=8192", "plan=auto", "forms=ef|topk{ratio=0.01}", "steps=1000000",
                            f"runs={tmp_path}", "name=run", "report=false", "eval_every=0", "log_every=10",
                            "checkpoint_every=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = Lines(lab.stdout)
        begin = said.wait("measured: an all_reduce takes", 120)
        metrics = tmp_path / "run" / "metrics.jsonl"
        rows = lambda: metrics.read_text().count("\n") if metrics.exists() else 0
        wait_until(lambda: rows() >= 5, 120)  # some windows as they should be
        form = lambda: json.loads((tmp_path / "run" / "choice.json").read_text())["chosen"]["form"]
        assert form() == "none", said.seen
        assert netlab("rate", "200mbit").returncode == 0
        seen = said.wait("measuring the links again", 120, begin)
        changed = said.wait("plan=auto: ", 120, seen)
        assert any("an all_reduce takes" in line and "before" in line for line in said.seen[seen:changed]), said.seen
        wait_until(lambda: form() == "ef|topk{ratio=0.01}")
        assert netlab("rate", "1gbit").returncode == 0
        before = rows()
        wait_until(lambda: rows() >= before + 5, 60)  # goes on; a plan that sends little has nothing to gain
        assert sum("plan=auto: " in line for line in said.seen[changed + 1:]) <= 1, "no flapping"
        lab.send_signal(signal.SIGTERM)
        lab.wait(timeout=60)
    finally:
        lab.kill()
    assert any("predicted and measured" in line for line in said.seen), said.seen
    sent = json.loads((tmp_path / "run" / "run.json").read_text())["summary"]["wire_bytes_per_step"]
    assert sent < 50e3, "what the links were measured with is no part of a step"
