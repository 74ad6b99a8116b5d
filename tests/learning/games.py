"""A two-turn game of two real, tiny models that is small enough to sum over everything that can happen.

Each agent sees a hint of its own and writes one token, "A" or anything else (which counts as "B").
The second prompt repeats the hint and tells whether both wrote the same, so that one agent's history
says something, but not everything, about the other's hint: its value is a mean over what it cannot see.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass

import torch

from workbench.models.tiny import tiny_model, tiny_tokenizer
from workbench.tracking.base import NullTracker

HINTS = "xy"
CHOICES = "AB"
ITEMS = [{"hints": first + second} for first, second in itertools.product(HINTS, repeat=2)]
PAIRS = [first + second for first, second in itertools.product(CHOICES, repeat=2)]
MET, MISSED = "=", "!"
REWARD_RANGE = 4.25  # of the second turn, -0.5 to 3.75; the first has 4.5

# How often each agent writes "A" after each prompt, about
POLICIES = (
    {"x": 0.7, "y": 0.4, "x=": 0.6, "x!": 0.35, "y=": 0.5, "y!": 0.7},
    {"x": 0.3, "y": 0.6, "x=": 0.4, "x!": 0.65, "y=": 0.7, "y!": 0.5},
)


def choice(text):
    return "A" if text == "A" else "B"


def outcome(pair):
    """What both agents are told of the first turn."""
    return MET if pair[0] == pair[1] else MISSED


def first_reward(hints, pair):
    """-1 to 3.5: who has which hint matters most; meeting pays a little."""
    return 0.5 * (outcome(pair) == MET) + 2.0 * (hints[0] == "y") + (1.0 if hints[1] == "x" else -1.0)


def second_reward(hints, before, pair):
    """-0.5 to 3.75: agent 0's hint matters most, having met pays by agent 1's hint, and each "A" a little."""
    earned = 2.0 * (hints[0] == "x") + (1.5 if hints[1] == "x" else 0.75) * (before == MET)
    return earned + 1.0 * (pair[0] == "A") * (hints[1] == "y") - 0.5 * (pair[1] == "A")


def reward(first, second, prompts, batch_items):
    """The trainer's reward function; agent 0's prompt tells the turn and what came before."""
    rewards = []
    for one, two, prompt, item in zip(first, second, prompts, batch_items):
        hints, before, pair = item["hints"], prompt[1:], choice(one) + choice(two)
        rewards.append(second_reward(hints, before, pair) if before else first_reward(hints, pair))
    return rewards


def follow(agent_completions, item, **history):
    return [hint + outcome("".join(map(choice, agent_completions))) for hint in item["hints"]]


FORMATTERS = [
    lambda item, external_prompts=None, agent=agent: external_prompts or item["hints"][agent] for agent in range(2)
]


def fitted_policies(steps=60):
    """Two tiny models that write about as often "A" as POLICIES says, else "B", and hardly anything else."""
    return [_fitted(tiny_model(seed=agent), POLICIES[agent], steps) for agent in range(2)]


def _fitted(model, wanted, steps):
    tokenizer = tiny_tokenizer()
    a, b = tokenizer.convert_tokens_to_ids(list(CHOICES))
    by_length = [{p: share for p, share in wanted.items() if len(p) == length} for length in (1, 2)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = torch.zeros(())
        for group in by_length:
            log_p, share = log_probabilities(model, tokenizer, list(group)), torch.tensor(list(group.values()))
            loss = loss - (share * log_p[:, a] + (1 - share) * log_p[:, b]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def log_probabilities(model, tokenizer, prompts):
    """[B, V] of the first token after prompts of one length."""
    return torch.log_softmax(model(torch.tensor(tokenizer(prompts).input_ids)).logits[:, -1], -1)


class Chances:
    """Exact P(choice | prompt) of the agents: a sum over the whole vocabulary, with the models' graph."""

    def __init__(self, models):
        self.models, self.tokenizer = models, tiny_tokenizer()
        size = models[0].config.vocab_size
        texts = [self.tokenizer.decode([token], skip_special_tokens=True) for token in range(size)]
        self.members = {symbol: torch.tensor([choice(text) == symbol for text in texts]) for symbol in CHOICES}
        self.known = {}

    def log(self, agent, prompt, symbol):
        if (agent, prompt) not in self.known:
            self.known[agent, prompt] = log_probabilities(self.models[agent], self.tokenizer, [prompt])[0]
        return self.known[agent, prompt][self.members[symbol]].logsumexp(0)

    def joint(self, prompts, pair):
        return sum(self.log(agent, prompts[agent], pair[agent]) for agent in range(2)).exp()


@dataclass(frozen=True)
class Step:
    """One turn of one path: prompts [2], choices "AB", the shared reward."""

    prompts: tuple[str, ...]
    pair: str
    reward: float


@dataclass(frozen=True)
class Path:
    """One way the game can go, and how likely it is (a tensor with the models' graph)."""

    steps: tuple[Step, ...]
    chance: torch.Tensor


def all_paths(models, turns=2, recall=False):
    """4 items x 4 joint choices per turn: all 16 or 64 paths, whose chances sum to 1.

    recall: another game, whose second prompt also repeats the agent's own first choice.
    """
    chances = Chances(models)
    paths = []
    for item, *pairs in itertools.product(ITEMS, *[PAIRS] * turns):
        hints, first = item["hints"], pairs[0]
        steps = [Step(tuple(hints), first, first_reward(hints, first))]
        if turns == 2:
            prompts = tuple(hint + own * recall + outcome(first) for hint, own in zip(hints, first))
            steps.append(Step(prompts, pairs[1], second_reward(hints, outcome(first), pairs[1])))
        chance = torch.stack([chances.joint(step.prompts, step.pair) for step in steps]).prod() / len(ITEMS)
        paths.append(Path(tuple(steps), chance))
    return paths


def seen_by(who, kind, prompts, pair):
    """What a critic's value may depend on: all prompts ("team") or one agent's, and in Q mode the choices, too."""
    if who == "team":
        return (*prompts, pair) if kind == "q" else tuple(prompts)
    return (prompts[who], pair[who]) if kind == "q" else (prompts[who],)


def exact_values(paths, who, kind, discount):
    """{what the critic sees: (fixed point of its TD target, probability)} summed over all paths, last turn first."""
    known = {}
    for turn in reversed(range(len(paths[0].steps))):
        mass, worth = defaultdict(float), defaultdict(float)
        for path in paths:
            keys = [seen_by(who, kind, step.prompts, step.pair) for step in path.steps[turn : turn + 2]]
            target = path.steps[turn].reward + (discount * known[keys[1]][0] if len(keys) == 2 else 0.0)
            mass[keys[0]] += path.chance.item()
            worth[keys[0]] += path.chance.item() * target
        known |= {key: (worth[key] / mass[key], mass[key]) for key in mass}
    return known


class Seen(NullTracker):
    """What a trainer reported: its critics' last word on everything they read, all steps, and its metrics.

    Only completions "A" and "B" are kept: what else counts as "B" is a text of its own to a Q critic.
    """

    def __init__(self, central, kind):
        self.central, self.kind = central, kind
        self.values, self.steps, self.points = {}, [], []

    def metrics(self, step, values):
        self.points.append(values)

    def nodes(self, records):
        for record in records:
            for joint in record.joints:
                rows = [row for row in record.completions if row.k == joint.joint]
                if all(row.text in tuple(CHOICES) for row in rows):
                    self._read(sorted(rows, key=lambda row: row.agent), joint)

    def _read(self, rows, joint):
        prompts, pair = [row.prompt for row in rows], "".join(row.text for row in rows)
        for row in rows:
            self.steps.append((row.agent, row.prompt, row.text, joint.return_, row.td_error))
            self.values[who := "team" if self.central else row.agent, seen_by(who, self.kind, prompts, pair)] = (
                row.value
            )
