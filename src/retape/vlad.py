"""VLAD: a functional language with derivatives and divide-and-conquer checkpointing.

The language of Siskind and Pearlmutter (2018), in three implementations: an
interpreter, a hybrid of CPS conversion and interpreter, and a compiler to native code.
"""

from .engines.vlad._api import RunResult as RunResult
from .engines.vlad._api import emit as emit
from .engines.vlad._api import run as run
from .engines.vlad._fault import ReadError as ReadError
from .engines.vlad._fault import RunError as RunError
from .engines.vlad._fault import SyntaxFault as SyntaxFault
from .engines.vlad._fault import VladError as VladError
from .engines.vlad._module import Function as Function
from .engines.vlad._module import Module as Module
from .engines.vlad._module import compile as compile
from .engines.vlad._python import Vector as Vector
from .engines.vlad._repl import Repl as Repl
from .engines.vlad._repl import repl as repl
