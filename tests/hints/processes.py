"""Programs that the rows run in a process of their own."""

import os
import subprocess
import sys


def alone(program: str, given: str = "", **setting: str) -> str:
    """What a program prints in a process with these variables of the environment."""
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", program],
        input=given.encode(),
        env=os.environ | path | setting,
        stdout=subprocess.PIPE,
        check=True,
    )
    return found.stdout.decode().strip()
