"""What went wrong with a joint response, in words for the agent that can mend it: one text per role."""

from __future__ import annotations

from workbench.tasks.code_reward import AUX, Assessment
from workbench.tasks.code_structure import Part, compile_error
from workbench.tasks.sandbox import Failure, Verdict


def diagnose(assessment: Assessment, entry_point: str) -> tuple[str, str]:
    """(for agent 1, who writes aux; for agent 2, who writes the entry function), each one or more sentences."""
    return _for_aux(assessment, entry_point), _for_main(assessment, entry_point)


def _for_aux(assessment: Assessment, entry_point: str) -> str:
    found = assessment.structure
    own = _definition_fault(found.aux_part, AUX, found.aux_defined, found.aux_returns)
    if own:
        return own
    if not found.main_returns:
        return f"Your {AUX} is fine so far, but your partner's answer has no {entry_point} that returns a value yet."
    return f"{_result(assessment, entry_point, found.main_part)} {_use_for_aux(assessment, entry_point)}".strip()


def _for_main(assessment: Assessment, entry_point: str) -> str:
    found = assessment.structure
    own = _definition_fault(found.main_part, entry_point, found.main_defined, found.main_returns)
    if own:
        return own
    return f"{_result(assessment, entry_point, found.aux_part)} {_use_for_main(assessment, entry_point)}".strip()


def _definition_fault(part: Part, name: str, defined: bool, returns: bool) -> str:
    """What keeps one agent's own text from counting, "" for nothing."""
    if not part.code.strip():
        return f"Your answer holds no code; define a function named {name}."
    error = part.error or compile_error(part.code)
    if error:
        return f"Your code has an error and was not run: {error}."
    if not defined:
        return f"Your code defines no function named {name} on its top level."
    return "" if returns else f"Your function {name} never returns a value."


def _result(assessment: Assessment, entry_point: str, partner: Part) -> str:
    """How the joint program did, for an agent whose own part compiles."""
    if compile_error(partner.code):
        return "Your partner's code has an error, so no test was run."
    if assessment.structure.compile_error:
        return f"Both answers together do not compile: {assessment.structure.compile_error}."
    verdict = assessment.verdict
    if verdict is None:
        return ""
    if verdict.failure is None:
        return f"{entry_point} passes all {len(verdict.passed)} tests."
    return f"{entry_point} passes {_count(verdict)} tests. {describe_failure(verdict.failure)}"


def _count(verdict: Verdict) -> str:
    return f"{sum(verdict.passed)} of {len(verdict.passed)}"


def describe_failure(failure: Failure) -> str:
    """The first failing test, with what was expected and what came instead."""
    text = f"The first one that fails is `{failure.test}`"
    if failure.expected and failure.got:
        return f"{text}: expected {failure.expected}, got {failure.got}."
    got = f" (the last call returned {failure.got})" if failure.got else ""
    return f"{text}: {failure.reason}{got}."


def _use_for_aux(assessment: Assessment, entry_point: str) -> str:
    if not assessment.structure.calls_aux:
        return f"Your partner's {entry_point} does not call {AUX}; make it do a part of the work that is worth calling."
    return ""


def _use_for_main(assessment: Assessment, entry_point: str) -> str:
    found = assessment.structure
    if not found.aux_defined:
        return f"Your partner's answer defines no {AUX} yet."
    if not found.calls_aux:
        return f"Your {entry_point} does not call your partner's {AUX}."
    if found.wasted:
        return f"Your {entry_point} calls {AUX} but never uses what it returns."
    if found.thin_wrapper:
        return f"Your {entry_point} only passes on what {AUX} returns; do a part of the work yourself."
    return ""
