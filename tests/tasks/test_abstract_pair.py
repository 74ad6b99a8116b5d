"""Abstract pair: the abstracts that ship, and what each agent is asked."""

from __future__ import annotations

from workbench.models.tiny import tiny_tokenizer
from workbench.tasks import TASKS
from workbench.tasks.abstract_pair import background_request, eval_abstracts, method_request, train_abstracts

TASK = TASKS["abstract_pair"]


def test_abstracts_are_distinct_full_texts_and_the_splits_do_not_meet() -> None:
    train, held_out = [[row["prompt"] for row in rows] for rows in (train_abstracts(), eval_abstracts())]
    assert (len(set(train)), len(set(held_out))) == (24, 6)
    assert not set(train) & set(held_out)
    assert all(80 <= len(abstract.split()) <= 160 for abstract in train + held_out)


def test_each_agent_is_shown_the_abstract_with_a_request_of_its_own() -> None:
    first, second = (formatter({"prompt": "We study."}) for formatter in (background_request, method_request))
    assert [message["role"] for message in first + second] == ["user", "user"]
    assert "background" in first[0]["content"]
    assert "method" in second[0]["content"]
    assert all(message["content"].endswith("\n\nWe study.") for message in first + second)


def test_every_prompt_and_answer_fits_the_smallest_built_in_model() -> None:
    """builtin:tiny has a context of 1024 bytes."""
    tokenizer = tiny_tokenizer()
    for item in train_abstracts() + eval_abstracts():
        for formatter in (background_request, method_request):
            prompt = tokenizer.apply_chat_template(formatter(item), tokenize=False, add_generation_prompt=True)
            ids = tokenizer(prompt, add_special_tokens=False).input_ids
            assert len(ids) + TASK.suggested_config["max_new_tokens"] <= 1024


def test_one_paragraph_for_both_agents() -> None:
    """The same 147 words twice: 0.5 + length ratio 1 -> 0.4 + vocabulary 1 -> 0.5 + 0.4 * T + overlap 1 -> 0.6."""
    paragraph = " ".join(["However, we measured trees."] * 35 + ["Therefore it matters."]) + " All in all yes"
    # 35 * 4 + 3 + 4 = 147 words; contrast, result, conclusion: T = 0.4 + 2 * 0.05 = 0.5
    (reward,) = TASK.reward([paragraph], [paragraph])
    assert abs(reward - (0.5 + 0.4 + 0.5 + 0.4 * 0.5 + 0.6)) < 1e-9
