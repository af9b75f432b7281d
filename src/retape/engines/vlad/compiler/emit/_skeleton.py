"""The C around a program: one function, its ways in, and what all blocks share."""

from collections.abc import Iterable

from retape.engines.vlad.compiler.emit._output import Output


def assemble(out: Output, static: Iterable[str], typed: Iterable[str]) -> str:
    """The whole C file; `typed` is what follows the program's own code."""
    return "\n".join(
        [
            '#include "code.h"',
            "",
            *static,
            "",
            "static int run(Val frame, int64_t fuel) {",
            "  Val *hp = G.hp, *limit = G.limit;",
            "  Val k = frame, ret = NOTHING, s0, s1, s2, unused;",
            "  int64_t need;",
            "  int32_t site;",
            "  enum Operator op;",
            "  (void)s2, (void)unused;",
            *(f"  Val {name};" for name in sorted(out.registers)),
            *_RESUME,
            *out.cases,
            "  default: __builtin_unreachable();",
            "  }",
            *_ENTER,
            *out.entries,
            "  default: __builtin_unreachable();",
            "  }",
            *out.lines,
            *_TAIL,
            "}",
            "",
            *typed,
            "",
            f"#define MAX_BLOCK_WORDS {out.max_words}",
            '#include "api.h"',
            "",
        ]
    )


_RESUME = [
    "RESUME:",
    "  switch (code_of(object(k))) {",
    "  case HALT:",
    "    G.hp = hp;",
    "    G.fuel = fuel;",
    "    G.result = ret;",
    "    G.k = NOTHING;",
    "    return 0;",
    "  case RETURN:",
    "    ret = object(k)->field[1];",
    "    k = object(k)->field[0];",
    "    goto RESUME;",
    "  case APPLY:",
    "    s1 = object(k)->field[1];",
    "    s0 = object(k)->field[2];",
    "    k = object(k)->field[0];",
    "    goto ENTER;",
]

_ENTER = [
    "ENTER:",
    "  if (UNLIKELY(tag_of(s0) != TAG_CLOSURE)) {",
    "    G.k = k;",
    '    fail(NOT_FUNCTION, "", G.site, s0, NOTHING);',
    "  }",
    "  switch (code_of(object(s0))) {",
]

_TAIL = [
    "OPERATE: __attribute__((unused));",
    "  G.hp = hp;",
    "  ret = apply_operator(op, s0, s1, s2, &k, site);",
    "  hp = G.hp;",
    "  goto RESUME;",
    "PAUSE_RETURN: __attribute__((unused)); {",
    "    G.hp = hp;",
    "    Object *o = small_object(RETURN, 2);",
    "    o->field[0] = k;",
    "    o->field[1] = ret;",
    "    k = tagged(TAG_FRAME, o);",
    "    hp = G.hp;",
    "  }",
    "PAUSE:",
    "  G.hp = hp;",
    "  G.k = k;",
    "  if (fuel < need) {",
    "    G.fuel = fuel;",
    "    return 1;",
    "  }",
    "  collect();",
    "  k = G.k;",
    "  hp = G.hp;",
    "  goto RESUME;",
]
