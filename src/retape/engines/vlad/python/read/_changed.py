"""Tell whether the text of a function has changed since Python read it.

A function is compiled from its text, and Python runs what it has made of it before: in
a file that was saved again in between, the two differ. So a text that is as young as
this process is compiled by Python once more, and the function must be found in it.
"""

import __future__

import os
import time
from functools import cache
from types import CodeType, FunctionType

from retape._reads import codes_in

_CLOCK_TICK = 2.0
_BEGIN = time.time() - _CLOCK_TICK
_FUTURE = sum(
    getattr(__future__, name).compiler_flag for name in __future__.all_feature_names
)


def is_changed(function: FunctionType, text: str) -> bool:
    """Tell whether a text is another one than a function was made of.

    A file that is older than this process was read as it is. (Tools that change the
    code of what they import, as pytest does, would not be told from a change.)
    """
    code = function.__code__
    try:
        if os.stat(code.co_filename).st_mtime < _BEGIN:
            return False
    except OSError:  # the cell of a notebook
        pass
    try:
        codes = _codes_of(text, code.co_filename, code.co_flags & _FUTURE)
    except SyntaxError:  # `await` in a cell
        return False
    return _shape(code) not in codes


@cache
def _codes_of(text: str, path: str, flags: int) -> frozenset[object]:
    module = compile(text, path, "exec", flags, dont_inherit=True)
    return frozenset(_shape(each) for each in codes_in(module))


def _shape(code: CodeType) -> object:
    """All that a code object does, and its first line."""
    constants = tuple(
        _shape(each) if isinstance(each, CodeType) else repr(each)
        for each in code.co_consts
    )
    variables = code.co_names, code.co_varnames, code.co_freevars
    return code.co_name, code.co_firstlineno, code.co_code, variables, constants
