"""VLAD: a functional language with derivatives and divide-and-conquer checkpointing.

The language of Siskind and Pearlmutter (2018), in three implementations: an
interpreter, a hybrid of CPS conversion and interpreter, and a compiler to native code.
"""

from retape.engines.vlad.language._diagnostics import ReadError as ReadError
from retape.engines.vlad.language._diagnostics import RunError as RunError
from retape.engines.vlad.language._diagnostics import SyntaxFault as SyntaxFault
from retape.engines.vlad.language._diagnostics import VladError as VladError
from retape.engines.vlad.language._externals import External as External
from retape.engines.vlad.session._module import Function as Function
from retape.engines.vlad.session._module import Module as Module
from retape.engines.vlad.session._module import compile as compile
from retape.engines.vlad.session._python_values import Vector as Vector
from retape.engines.vlad.session._repl import Repl as Repl
from retape.engines.vlad.session._repl import repl as repl
from retape.engines.vlad.session._run import RunResult as RunResult
from retape.engines.vlad.session._run import emit as emit
from retape.engines.vlad.session._run import run as run
