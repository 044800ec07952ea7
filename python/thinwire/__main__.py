# SPDX-License-Identifier: Apache-2.0
"""python -m thinwire: the command-line tool, which here also trains classes of Python files.

    python -m thinwire train --ranks 2 --model net.py:Net
"""

import signal
import sys

from thinwire._load import native


def main():
    # As in any program: Ctrl-C ends it, or is a wish while it trains.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return native.run_tool(["thinwire", *sys.argv[1:]], [sys.executable, "-m", "thinwire"])


if __name__ == "__main__":
    sys.exit(main())
