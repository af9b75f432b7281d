"""The prompt: read an expression or a definition, evaluate, print, repeat."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from retape.engines.vlad.language._diagnostics import ReadError, Source, VladError
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.language._reader import read
from retape.engines.vlad.session._console import printable
from retape.engines.vlad.session._engines import (
    EngineName,
    Setting,
    in_text,
    make_engine,
)
from retape.engines.vlad.session._options import DEFAULT_PLAN
from retape.engines.vlad.values._values import show
from retape.plan._base import Plan

PROMPT, MORE = "vlad> ", "  ... "

Ask = Callable[[str], str]
"""Like `input`: shows a prompt, returns a line, raises `EOFError` at the end."""


class Repl:
    """A session with a person.

    Args:
        ask: Where lines come from.
        tell: Where text goes.
        engine: Which implementation evaluates; the compiler takes a moment each time.
        plan: How `checkpoint-*j` divides a run.
    """

    def __init__(
        self,
        ask: Ask,
        tell: Callable[[str], None],
        *,
        engine: EngineName = "interpreter",
        plan: Plan | None = None,
    ) -> None:
        self._ask = ask
        self._tell = tell
        self._engine: EngineName = engine
        self._plan = plan or DEFAULT_PLAN
        self._session = Session(redefine=True)
        self._entry = 0

    def loop(self) -> None:
        """Until the input ends."""
        while True:
            try:
                text = self._entry_text()
            except EOFError:
                self._tell("")
                return
            except KeyboardInterrupt:
                self._tell("")
                continue
            except UnicodeDecodeError as error:
                self._tell(
                    f"a letter of this line is none of `{error.encoding}`, the "
                    "terminal's encoding; write another, or set "
                    "`PYTHONIOENCODING=utf-8`"
                )
                continue
            with contextlib.suppress(KeyboardInterrupt):
                self.evaluate(text)

    def _entry_text(self) -> str:
        """Lines until every list that was opened is closed."""
        text = self._ask(PROMPT)
        while _is_unfinished(text):
            text += "\n" + self._ask(MORE)
        return text

    def evaluate(self, text: str) -> None:
        """One entry: its values, or what is wrong with it."""
        self._entry += 1
        try:
            program = self._session.add(Source(f"entry {self._entry}", text))
            if not program.expressions:
                return
            setting = Setting(self._plan, self._read_real, in_text(self._tell))
            engine = make_engine(self._engine, program, setting)
            for index in range(len(program.expressions)):
                value, _ = engine.evaluate(index)
                self._tell(show(value))
        except VladError as error:
            self._tell(str(error))
        except Exception as error:  # noqa: BLE001 - the definitions must survive it
            self._tell(f"{type(error).__name__}: {error}")

    def _read_real(self) -> float | None:
        while True:
            try:
                line = self._ask("real> ").strip()
                return float(line)
            except EOFError:
                return None
            except ValueError:
                self._tell("write one number, such as `0.5`")


def _is_unfinished(text: str) -> bool:
    try:
        read(Source("entry", text))
    except ReadError as error:
        return "never closed" in error.message
    return False


def repl(*, engine: EngineName = "interpreter", plan: Plan | None = None) -> None:
    """Talk to the person at the terminal, with line editing and a history.

    Args:
        engine: "interpreter", "hybrid" or "compiled".
        plan: How `checkpoint-*j` divides a run; by default
            `retape.logarithmic(stage=100_000)`.

    Raises:
        PlanError: If `engine` or `plan` cannot be.
    """
    with _history():
        Repl(input, _tell, engine=engine, plan=plan).loop()


def _tell(text: str) -> None:
    print(printable(text, sys.stdout))


@contextlib.contextmanager
def _history() -> Iterator[None]:
    try:
        import readline
    except ImportError:
        yield
        return
    path = Path.home() / ".retape_vlad_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.set_history_length(1000)
            readline.write_history_file(path)
