"""`retape completion`: a shell's script that completes commands and options.

It is made from the parser, so it knows every option that there is.
"""

import argparse
import shlex
from typing import Any

SHELLS = ("bash", "zsh", "fish")


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script that completes commands and options. Evaluate it "
        'in the start file of the shell: eval "$(retape completion bash)", the same '
        'with zsh, or "retape completion fish | source".',
        examples=("retape completion bash",),
    )
    parser.add_argument("shell", choices=SHELLS, help="print the script of this shell")
    parser.set_defaults(run=lambda options: run(options, commands.choices))


def run(
    options: argparse.Namespace, commands: dict[str, argparse.ArgumentParser]
) -> int:
    """Print the script."""
    words = {name: _words(parser) for name, parser in commands.items()}
    print(_fish(words) if options.shell == "fish" else _bash(words, options.shell))
    return 0


Words = dict[str, tuple[str, tuple[str, ...]]]
"""Options of a command: the help and the values of each; positional ones as ""."""


def _words(parser: argparse.ArgumentParser) -> Words:
    found: Words = {}
    for action in parser._actions:  # argparse offers no other way to list them
        values = tuple(str(value) for value in action.choices or ())
        for option in action.option_strings or ([""] if values else []):
            if option.startswith("--") or not option:
                found[option] = (action.help or "", values)
    return found


def _bash(commands: dict[str, Words], shell: str) -> str:
    cases = []
    for name, words in commands.items():
        for option, (_, values) in words.items():
            if option and values:
                cases.append(f'    {name}:{option}) words="{" ".join(values)}" ;;')
        plain = " ".join([*words.get("", ("", ()))[1], *filter(None, words)])
        cases.append(f'    {name}:*) words="{plain}" ;;')
    names = " ".join([*commands, "--help", "--version"])
    lines = [
        "_retape() {",
        "  local words here=${COMP_WORDS[COMP_CWORD]}",
        "  case ${COMP_WORDS[1]}:${COMP_WORDS[COMP_CWORD-1]} in",
        *cases,
        f'    *) words="{names}" ;;',
        "  esac",
        f'  [ "$COMP_CWORD" = 1 ] && words="{names}"',
        '  COMPREPLY=($(compgen -W "$words" -- "$here"))',
        "}",
        "complete -o default -F _retape retape",
    ]
    if shell == "zsh":
        lines[:0] = ["autoload -Uz +X compinit && compinit"]
        lines[1:1] = ["autoload -Uz +X bashcompinit && bashcompinit"]
    return "\n".join(lines)


def _fish(commands: dict[str, Words]) -> str:
    lines = []
    for name, words in commands.items():
        lines.append(f"complete -c retape -n __fish_use_subcommand -a {name}")
        at = f"complete -c retape -n '__fish_seen_subcommand_from {name}'"
        for option, (text, values) in words.items():
            given = f" -a {shlex.quote(' '.join(values))}" if values else ""
            if option:
                help_text = shlex.quote(text.split("\n")[0])
                require = " -x" if values else ""
                lines.append(f"{at} -l {option[2:]} -d {help_text}{require}{given}")
            else:
                lines.append(f"{at}{given}")
    return "\n".join(lines)
