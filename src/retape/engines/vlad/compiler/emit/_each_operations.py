"""Operators on whole vectors as statements of C: what they do is a table of words."""

from collections.abc import Sequence

from retape.engines.vlad.compiler.ir._operator_text import real_text
from retape.engines.vlad.language._each import Each, postfix
from retape.engines.vlad.operators._table import OPERATORS


def each_operation(each: Each, to: str, args: Sequence[str], site: int) -> str:
    """The statement that applies one."""
    codes: list[str] = []
    numbers: list[str] = []
    for word in postfix(each.item):
        if word.startswith("#"):
            codes.append(f"EACH_NUMBER + {len(numbers)}")
            numbers.append(real_text(float.fromhex(word[1:])))
        else:
            codes.append(word if word.isdigit() else f"EACH_{OPERATORS[word].called}")
    code = ", ".join([*codes, "EACH_END"])
    number = ", ".join(numbers or ["0.0"])
    return (
        f"{{ static const unsigned char words[] = {{{code}}}; "
        f"static const double numbers[] = {{{number}}}; "
        f'const Each e = {{words, "{each.kinds}", numbers, {int(each.is_sum)}}}; '
        f"const Val args[] = {{{', '.join(args)}}}; "
        f"RUNTIME({to}, each(&e, args, {len(args)}, {site})) }} WORKED"
    )
