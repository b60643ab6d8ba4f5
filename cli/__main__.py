"""Starts the command line. What Ctrl-C stops while its modules are imported ends without a stack trace."""

from __future__ import annotations

import gc
import signal
import sys


def _main() -> int:
    stops = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if stops:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # an import leaves no garbage, and collecting it takes a tenth of the start-up
    from cli.main import main

    gc.freeze()
    gc.enable()
    if stops:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(_main())
