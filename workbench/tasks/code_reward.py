"""The code reward: agent 1 writes a helper `aux`, agent 2 the entry function that may call it. At most 4.0.

| earned | for | |
|---|---|---|
| +0.4 | aux is defined on the top level and returns a value | |
| +0.6 | main is defined on the top level and returns a value | gate: without it, nothing more |
| +0.5 | imports, aux and main compile together | gate |
| 0..1 | the fraction of the tests passed | |
| +0.5 | main calls aux | these three only with at least one test passed and aux defined |
| +1.0 | main calls aux and is more than a thin wrapper around it | |
| -0.5 | main calls aux and throws the result away | |

"main" is the function that the item's entry_point names. If agent 2 gives the name aux a meaning of its own, its
calls are not calls of agent 1's aux and earn nothing. Structure is read off the syntax tree (`code_structure`), tests
run in the sandbox (`sandbox`); this module knows no prompts and no items.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from workbench.tasks.code_structure import (
    Part,
    binds,
    calls,
    compile_error,
    definition,
    is_thin_wrapper,
    join,
    read_part,
    returns_value,
    throws_away,
)
from workbench.tasks.sandbox import Case, Limits, Program, Verdict, run_tests

AUX = "aux"
AUX_PART, MAIN_PART, COMPILE_PART, TESTS_PART = 0.4, 0.6, 0.5, 1.0
CALL_PART, WORK_PART, WASTE_PART = 0.5, 1.0, -0.5
REMEMBERED = 1024  # verdicts; a turn's programs are judged for the reward, and again for diagnosis and metrics


@dataclass(frozen=True)
class Problem:
    """What an item asks for: the entry function, the tests, and what the prompt gives every program."""

    entry_point: str
    cases: tuple[Case, ...]
    prelude: str = ""
    setup: str = ""  # trusted code that the tests may use


@dataclass(frozen=True)
class Structure:
    """What the syntax trees of both agents' texts say."""

    aux_part: Part
    main_part: Part
    aux_defined: bool
    aux_returns: bool
    main_defined: bool
    main_returns: bool
    calls_aux: bool
    thin_wrapper: bool
    wasted: bool
    source: str  # the joint program, "" unless main returns
    compile_error: str  # of the joint program


@dataclass(frozen=True)
class Assessment:
    """All that the reward, the diagnosis and the metrics need about one joint response."""

    structure: Structure
    verdict: Verdict | None  # None: a gate before the tests was closed

    @property
    def reward(self) -> float:
        """0 .. 4, see the module's table."""
        found, verdict = self.structure, self.verdict
        total = AUX_PART * found.aux_returns + MAIN_PART * found.main_returns
        if verdict is None:
            return total
        total += COMPILE_PART + TESTS_PART * verdict.fraction
        if any(verdict.passed) and found.aux_defined and found.calls_aux:
            total += CALL_PART + WORK_PART * (not found.thin_wrapper) + WASTE_PART * found.wasted
        return total


def read_structure(aux_text: str, main_text: str, entry_point: str, given: str = "") -> Structure:
    """The structure of two completions; `given` is the program's prelude."""
    aux_part, main_part = read_part(aux_text, AUX), read_part(main_text, entry_point)
    aux = definition(aux_part.tree, AUX) if aux_part.tree else None
    main = definition(main_part.tree, entry_point) if main_part.tree else None
    main_returns = main is not None and returns_value(main)
    own_aux = main_part.tree is not None and binds(main_part.tree, AUX)
    calls_aux = main is not None and not own_aux and bool(calls(main, AUX))
    source = join([given, aux_part.code, main_part.code]) if main_returns else ""
    return Structure(
        aux_part=aux_part,
        main_part=main_part,
        aux_defined=aux is not None,
        aux_returns=aux is not None and returns_value(aux),
        main_defined=main is not None,
        main_returns=main_returns,
        calls_aux=calls_aux,
        thin_wrapper=main is not None and calls_aux and is_thin_wrapper(main, AUX),
        wasted=main is not None and calls_aux and throws_away(main, AUX),
        source=source,
        compile_error=compile_error(source) if source else "",
    )


def assess(
    answers: Sequence[tuple[str, str]],
    problems: Sequence[Problem],
    limits: Limits,
    workers: int | None,
    memory: MutableMapping[Program, Verdict],
) -> list[Assessment]:
    """One assessment per (agent 1's text, agent 2's text) and its problem; all programs run side by side.

    memory: verdicts by program, read and added to, so that equal programs run once and keep their verdict.
    """
    structures = [
        read_structure(*texts, problem.entry_point, problem.prelude) for texts, problem in zip(answers, problems)
    ]
    programs = [_program(structure, problem) for structure, problem in zip(structures, problems)]
    new = [program for program in dict.fromkeys(programs) if program is not None and program not in memory]
    verdicts = {program: memory[program] for program in programs if program is not None and program in memory}
    verdicts.update(zip(new, run_tests(new, limits, workers)))
    memory.update(verdicts)
    for program in list(memory)[: max(0, len(memory) - REMEMBERED)]:  # the oldest
        del memory[program]
    return [
        Assessment(structure, None if program is None else verdicts[program])
        for structure, program in zip(structures, programs)
    ]


def _program(structure: Structure, problem: Problem) -> Program | None:
    if not structure.main_returns or structure.compile_error:
        return None
    return Program(structure.source, problem.entry_point, problem.cases, problem.setup)
