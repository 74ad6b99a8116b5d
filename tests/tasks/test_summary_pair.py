"""Summary pair: the posts that ship, and what each agent is asked."""

from __future__ import annotations

import pytest

from workbench.models.tiny import tiny_tokenizer
from workbench.tasks import TASKS
from workbench.tasks.summary_pair import concise_request, detailed_request, eval_posts, train_posts

TASK = TASKS["summary_pair"]


def test_posts_are_distinct_full_texts_and_the_splits_do_not_meet() -> None:
    train, held_out = [[row["prompt"] for row in rows] for rows in (train_posts(), eval_posts())]
    assert (len(set(train)), len(set(held_out))) == (32, 8)
    assert not set(train) & set(held_out)
    assert all(60 <= len(post.split()) <= 150 for post in train + held_out)


def test_each_agent_is_shown_the_post_with_a_request_of_its_own() -> None:
    first, second = (formatter({"prompt": "My post."}) for formatter in (concise_request, detailed_request))
    assert [message["role"] for message in first + second] == ["user", "user"]
    assert first != second
    assert all(message["content"].endswith("\n\nMy post.") for message in first + second)


def test_every_prompt_and_answer_fits_the_smallest_built_in_model() -> None:
    """builtin:tiny has a context of 1024 bytes."""
    tokenizer = tiny_tokenizer()
    for item in train_posts() + eval_posts():
        for formatter in (concise_request, detailed_request):
            prompt = tokenizer.apply_chat_template(formatter(item), tokenize=False, add_generation_prompt=True)
            ids = tokenizer(prompt, add_special_tokens=False).input_ids
            assert len(ids) + TASK.suggested_config["max_new_tokens"] <= 1024


def test_a_pair_of_real_summaries() -> None:
    """Two good summaries of one post earn everything but the transitions that they do not use."""
    first = "A flatmate pays half of the groceries but eats much less; I want a fair way to share the costs."
    second = (
        "The writer and a flatmate share groceries equally, although one of them is away at weekends and eats at "
        "work, so the other pays for more than a fair share of the costs. Talking about it went badly. Therefore "
        "the question is whether buying separate food is petty."
    )
    (reward,) = TASK.reward([first], [second])
    # 20 and 48 words; 95 and 262 characters, ratio 2.76; 18 and 38 distinct words, ratio 2.11; 7 of 27 content words
    # shared; although and therefore: two categories, T = 0.45. So 0.5 + 1 + 0.5 + 0.4 * 0.45 + 0.6
    assert reward == pytest.approx(2.78)
    assert TASK.reward([second], [first])[0] == 0.5  # the wrong way round: the second is the shorter one
