"""summary_pair on the shortest of its posts, which a small model reads fastest."""

from __future__ import annotations

import dataclasses

from workbench.tasks.summary_pair import SUMMARY_PAIR, train_posts

TRAIN = 5  # posts
TASK = dataclasses.replace(
    SUMMARY_PAIR,
    name="summary_pair_short",
    train_items=lambda: sorted(train_posts(), key=lambda post: len(post["prompt"]))[:TRAIN],
)
