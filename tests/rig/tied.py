"""Runs a program that ends when its parent does: ``tied.py PARENT PROGRAM ARG...``.

A parent that is killed cannot end anything; the kernel can. It is asked for that here, between fork and exec, and a
program keeps the answer. (Not in Popen's ``preexec_fn``: that is not safe in a process that has threads.)
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, program, *arguments = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it ended before the kernel was asked
        sys.exit("the parent is gone")
    os.execv(program, [program, *arguments])
