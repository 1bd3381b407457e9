#!/usr/bin/env python3
"""Installs llama.cpp alone, the version that Quire is measured beside, for tests that compare with it.

    python3 bench/peers/llama_cpp.py WORK [--jobs N]

Prints where its programs and its source are.
"""

import argparse
import os
import pathlib

from install import Installation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    installation = Installation(args.work, pathlib.Path(), args.jobs)
    installation.packages("requirements-llama.txt")
    installation.make(installation.llama, installation.build_llama)
    print(installation.llama)
    print(installation.llama_source)


if __name__ == "__main__":
    main()
