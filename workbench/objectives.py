"""Every formula on tensors: returns, scores, losses, penalties. No models, no modes, no side effects.

The baselines and TD errors stand in workbench.estimators, since the app computes them without torch.

Equation names refer to the multi-agent REINFORCE and actor-critic pages that define the algorithms:
  J(theta_i) = E[ 1/K sum_k sum_t (R_t^k - b(h_t)) log pi_i(a_t^k | h_t) ]          (REINFORCE family)

Shapes: K completions of one agent at one node, J joint responses of that node, n agents,
G <= K scored completions, B sequences of at most T completion tokens, V vocabulary entries.
Masks are named by what True means.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# --- joint responses and returns ---------------------------------------------------------------


def aligned_responses(num_agents: int, num_generations: int) -> tuple[tuple[int, ...], ...]:
    """Joint response k is every agent's completion k: J = K rows [J, n]."""
    return tuple((k,) * num_agents for k in range(num_generations))


def cross_responses(num_agents: int, num_generations: int) -> tuple[tuple[int, ...], ...]:
    """Every combination of the agents' completions: J = K**n rows [J, n], last agent fastest."""
    return tuple(itertools.product(range(num_generations), repeat=num_agents))


JOINT_MODES: dict[str, Callable[[int, int], tuple[tuple[int, ...], ...]]] = {
    "aligned": aligned_responses,
    "cross": cross_responses,
}


def joint_returns(rewards: Tensor, child_returns: Sequence[Tensor | None]) -> Tensor:
    """R_t^j = r_t^j + mean over the child node's returns; no discount. NaN marks "unscored".

    rewards [J]; child_returns: J tensors [J'] (None: the branch ends here). Returns [J].
    A branch whose own reward, or whose whole child node, is unscored is unscored itself: a
    missing future must not pass for a future worth zero.
    Source: multi-turn rule of the MAGRPO page.
    """
    future = [torch.zeros(()) if c is None else torch.nanmean(c) for c in child_returns]
    return rewards + torch.stack(future).to(rewards)


def completion_returns(returns: Tensor, responses: Tensor, agent: int, num_generations: int) -> Tensor:
    """Return of each of the agent's completions: the SUM of the joint returns that contain it.

    returns [J], NaN where unscored; responses [J, n]; result [K]. Aligned: each completion is in
    one joint response, so this is its return. Cross: a sum of K**(n-1) returns. Unscored joint
    responses count as the mean of the completion's scored ones (a plain sum would count them as
    0 and favour or punish the completion for a reward nobody gave); with none scored: NaN.
    Source: cross mode of the MAGRPO page.
    """
    column = responses[:, agent]
    rows = [returns[column == k] for k in range(num_generations)]
    return torch.stack([torch.nanmean(r) * r.numel() for r in rows])


def penalised_returns(returns: Tensor, kl: Tensor, coefficient: float, memberships: int) -> Tensor:
    """R - coef * KL in every joint return the completion takes part in.

    returns [K] as from completion_returns, kl [K] of the agent's own completions, memberships =
    joint responses per completion (1 aligned, K**(n-1) cross). Before baseline and normalisation.
    """
    return returns - memberships * coefficient * kl


# --- scores, losses, penalties -------------------------------------------------------------------


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """log pi(token) of the policy that was sampled: float32 log-softmax of logits / temperature.

    logits [B, T, V] at the positions that predict `tokens` [B, T]. Returns [B, T].
    top_p / top_k truncation is not reflected.
    """
    flat = _tempered(logits, temperature).flatten(0, -2)
    return -F.cross_entropy(flat, tokens.flatten(), reduction="none").view(tokens.shape)


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    """float32 logits / temperature; with a large vocabulary, the copy that a division by 1 makes is worth saving."""
    return logits.float() if temperature == 1.0 else logits.float() / temperature


def sequence_score(logprobs: Tensor, is_completion: Tensor) -> Tensor:
    """log pi(a | h) = sum over the completion's tokens, terminator included. [B, T] -> [B].

    is_completion [B, T]: True on the completion's own tokens, False on trailing padding.
    """
    return logprobs.masked_fill(~is_completion, 0.0).sum(-1)


def mean_token_entropy(logits: Tensor, is_completion: Tensor, temperature: float) -> Tensor:
    """Mean over the completion of the entropy of the next-token distribution, in nats. -> [B]."""
    log_p = torch.log_softmax(_tempered(logits, temperature), -1)
    probabilities = log_p.exp()
    entropy = -torch.linalg.vecdot(probabilities, log_p)
    if not entropy.isfinite().all():  # entries of probability 0, whose part is 0
        entropy = torch.special.entr(probabilities).sum(-1)
    return entropy.masked_fill(~is_completion, 0.0).sum(-1) / is_completion.sum(-1)


def policy_gradient_loss(scores: Tensor, weights: Tensor, shares: Tensor) -> Tensor:
    """-(sum of share * weight * log pi): the REINFORCE surrogate of J(theta_i), negated.

    All [B]. weights are the (normalised) advantages, constants; shares sum to 1 over an
    optimizer step, so the loss is the mean over node samples of the mean over their completions,
    whatever the micro-batches. No importance ratio, no clipping.
    """
    return -(shares * weights.detach() * scores).sum()


def k3_kl(logprobs: Tensor, reference_logprobs: Tensor, is_completion: Tensor) -> Tensor:
    """Sampled KL(pi || ref) of each completion: sum over tokens of exp(q) - q - 1, q = log ref - log pi.

    All [B, T] -> [B]. Schulman's k3 estimator: never negative, exactly 0 for equal models.
    """
    q = (reference_logprobs - logprobs).masked_fill(~is_completion, 0.0)
    return (torch.expm1(q) - q).sum(-1)


# --- actor-critic --------------------------------------------------------------------------------


def value_loss(values: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
    """Mean of (target - value)^2, targets constant. All [B]; shares sum to 1 over an optimizer step."""
    return (shares * (targets.detach() - values).square()).sum()


def clipped_value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, shares: Tensor, clip_range: float | None
) -> Tensor:
    """Mean of max((V - target)^2, (V_clip - target)^2), V_clip = V_old + clip(V - V_old, +-range).

    All [B]; None = no clipping. Source: the shared-model loss of the IAC section.
    """
    if clip_range is None:
        return value_loss(values, targets, shares)
    old, targets = old_values.detach(), targets.detach()
    clipped = old + (values - old).clamp(-clip_range, clip_range)
    return (shares * torch.maximum((values - targets).square(), (clipped - targets).square())).sum()
