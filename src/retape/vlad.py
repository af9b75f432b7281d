"""VLAD: a functional language with derivatives and divide-and-conquer checkpointing.

The language of Siskind and Pearlmutter (2018), in three implementations: an
interpreter, a hybrid of CPS conversion and interpreter, and a compiler to native code.
"""

from retape.engines.vlad.language._externals import External as External
from retape.engines.vlad.session._module import compile as compile
from retape.engines.vlad.session._python_values import Vector as Vector
from retape.engines.vlad.session._run import run as run
