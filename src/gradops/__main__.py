"""``python -m gradops``: the command line."""

import sys

from gradops._bench.cli import main

if __name__ == "__main__":
    sys.exit(main())
