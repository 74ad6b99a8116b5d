"""Long traces, written once for all tests of this folder."""

import pytest
from big_trace import critic_trace, reinforce_trace


@pytest.fixture(scope="session")
def big_trace(tmp_path_factory):
    """100,000 nodes, 2 agents, 4 completions each: 800,000 completions."""
    return reinforce_trace(tmp_path_factory.mktemp("big") / "trace.db")


@pytest.fixture(scope="session")
def big_critic_trace(tmp_path_factory):
    """100,000 nodes of an actor-critic, 2 agents."""
    return critic_trace(tmp_path_factory.mktemp("big-critic") / "trace.db")
