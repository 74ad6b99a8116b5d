"""Sampling and scoring of real, tiny models: what is scored is exactly what was sampled."""

import copy
import random

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from workbench.config import MAGRPOConfig
from workbench.models.language_model import LanguageModel
from workbench.models.loading import ModelError
from workbench.models.policy import Policy
from workbench.models.tiny import tiny_model, tiny_tokenizer
from workbench.parallel.handles import LocalHandle
from workbench.parallel.team import Team
from workbench.types import Completion, Sampling, Term

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CPU = torch.device("cpu")


def gpt2(dropout=0.0):
    """Absolute positions: a wrong position id changes every score."""
    config = GPT2Config(vocab_size=259, n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3,
                        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, **IDS)  # fmt: skip
    return GPT2LMHeadModel(config)


def llama(dropout=0.0):
    """Grouped-query attention, untied head."""
    config = LlamaConfig(vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         initializer_range=0.3, attention_dropout=dropout, **IDS)  # fmt: skip
    return LlamaForCausalLM(config)


def gemma():
    """Sliding window, soft-capped logits, tied and scaled embeddings."""
    config = Gemma2Config(vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                          num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
                          sliding_window=6, query_pre_attn_scalar=8, initializer_range=0.3, **IDS)  # fmt: skip
    return Gemma2ForCausalLM(config)


MODELS = {"tiny": tiny_model, "gpt2": gpt2, "llama": llama, "gemma": gemma}


def build(kind="tiny", **options):
    torch.manual_seed(0)
    model = MODELS[kind](**options).eval()
    model.generation_config = GenerationConfig(**IDS)
    return model


def policy(model=None, tokenizer=None, **config):
    settings = {"num_turns": 1, "agent_learning_rate": 1e-3} | config
    return Policy(model or build(), tokenizer or tiny_tokenizer(), MAGRPOConfig(**settings), CPU, "agent 0")


def completion(prompt_ids, token_ids):
    return Completion("", tuple(prompt_ids), "", tuple(token_ids), True, 0.0)


# Different prompt and completion lengths, a one-token completion, a prompt and a completion with the pad id
BATCH = [
    completion([1, 10, 11, 12], [50, 51, 52, 2]),
    completion([1], [60, 2]),
    completion([1, 20, 21, 22, 23, 24, 25, 26, 27], [70, 71, 72, 73, 74, 75, 76]),
    completion([1, 30, 0, 31], [80, 0, 81]),
    completion([1, 40, 41], [2]),
]


# Groups that share their prompt, as K completions of one node do
SHARED = [
    completion(prompt, tokens)
    for prompt in ([1, 10, 11, 12], [1, 20, 21, 22, 23, 24, 25, 26, 27])
    for tokens in ([50, 51, 52, 2], [2], [60, 0, 61], [70, 71, 72, 73, 74, 75, 76])
]
BATCHES = {"different prompts": BATCH, "shared prompts": SHARED, "one prompt": SHARED[:4], "both": BATCH + SHARED}


def reference(model, item, temperature=1.0):
    """One sequence alone, no padding, no tricks: log pi of each completion token."""
    ids = torch.tensor([[*item.prompt_ids, *item.token_ids]])
    with torch.no_grad():
        log_p = torch.log_softmax(model(input_ids=ids).logits[0].double() / temperature, -1)
    start = len(item.prompt_ids)
    return [log_p[start + i - 1, token].item() for i, token in enumerate(item.token_ids)]


def sampling(**options):
    return Sampling(**{"max_new_tokens": 6, **options})


def draw(worker, prompts=("abc", "a much longer prompt"), count=3, seed=3, **options):
    return [c for row in worker.generate(list(prompts), count, sampling(**options), seed) for c in row]


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("kind", MODELS)
def test_batched_scores_equal_a_plain_forward(kind, batch, temperature):
    worker = policy(build(kind), temperature=temperature)
    for item, row in zip(batch, worker.token_logprobs(batch), strict=True):
        assert row == pytest.approx(reference(worker.model, item, temperature), abs=1e-5)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("micro_batch_size", [1, 2, 4])
def test_micro_batches_keep_order_and_scores(micro_batch_size, batch):
    worker = policy(build("gpt2"), micro_batch_size=micro_batch_size)
    for item, row in zip(batch, worker.token_logprobs(batch), strict=True):
        assert row == pytest.approx(reference(worker.model, item), abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("kind", MODELS)
def test_sampled_and_scored_policy_are_one(kind, temperature):
    worker = policy(build(kind), temperature=temperature)
    drawn = draw(worker, temperature=temperature)
    for c, row in zip(drawn, worker.token_logprobs(drawn), strict=True):
        assert c.logprob == pytest.approx(sum(row), abs=1e-4)
        assert c.logprob == pytest.approx(sum(reference(worker.model, c, temperature)), abs=1e-4)


@pytest.mark.parametrize("options", [{"top_p": 0.3}, {"top_k": 2}])
def test_truncated_sampling_is_scored_by_the_full_distribution(options):
    worker = policy(build("llama"))
    for c in draw(worker, **options):
        assert c.logprob == pytest.approx(sum(reference(worker.model, c)), abs=1e-4)


def test_top_k_one_is_greedy():
    worker = policy(build("llama"))
    for c in draw(worker, top_k=1, max_new_tokens=4):
        ids = list(c.prompt_ids)
        for token in c.token_ids:
            with torch.no_grad():
                assert worker.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax().item() == token
            ids.append(token)


def test_damaged_weights_are_named_when_sampling():
    model = build("llama")
    model.lm_head.weight.data[:] = float("nan")
    with pytest.raises(ModelError, match=r"agent 0.*not finite"):
        draw(policy(model))


def test_update_reports_the_scores_before_the_step():
    worker = policy(build("gpt2"))
    expected = [sum(reference(worker.model, c)) for c in BATCH]
    result = worker.update([Term(c, 1.0, 0.2) for c in BATCH])
    assert result.scores == pytest.approx(expected, abs=1e-4)
    assert [sum(reference(worker.model, c)) for c in BATCH] != pytest.approx(expected, abs=1e-3)


def test_update_raises_the_probability_of_what_has_positive_weight():
    worker = policy(build("llama"))
    good, bad = BATCH[0], BATCH[2]
    before = [sum(reference(worker.model, c)) for c in (good, bad)]
    worker.update([Term(good, 1.0, 0.5), Term(bad, -1.0, 0.5)])
    after = [sum(reference(worker.model, c)) for c in (good, bad)]
    assert after[0] > before[0] and after[1] < before[1]


def test_one_token_completions_learn():
    worker = policy(build("llama"))
    item = BATCH[4]
    before = reference(worker.model, item)[0]
    result = worker.update([Term(item, 1.0, 1.0)])
    assert result.grad_norm > 1e-3
    assert reference(worker.model, item)[0] > before


@pytest.mark.parametrize("kind", ["tiny", "gpt2", "gemma"])
@pytest.mark.parametrize("size", [1, 2, None])
def test_logits_are_computed_only_where_completion_tokens_are_predicted(kind, size):
    worker = policy(build(kind), micro_batch_size=size)
    columns = []
    worker.model.get_output_embeddings().register_forward_pre_hook(lambda _, args: columns.append(args[0].shape[1]))
    worker.update([Term(c, 1.0, 0.2) for c in BATCH])
    # completions of 1 2 3 4 7 tokens: never more columns than the longest of the micro-batch
    assert sorted(columns) == {1: [1, 2, 3, 4, 7], 2: [2, 4, 7], None: [7]}[size]


# --- updates do not depend on how they are computed --------------------------------------------


def updated(kind, batch=BATCH, steps=2, **config):
    worker = policy(build(kind), **config)
    weights = [(1.0, -0.5, 0.25, -1.5, 0.75)[i % 5] for i in range(len(batch))]
    terms = [Term(c, w, 1 / len(batch)) for c, w in zip(batch, weights)]
    results = [worker.update(terms) for _ in range(steps)]
    return worker.model.state_dict(), results


def assert_same_weights(actual, expected, tolerance=1e-5):
    for name, value in expected.items():
        if name.endswith("c_attn.bias"):  # a key bias cancels in the softmax: its gradient is rounding noise,
            continue  # which Adam blows up to the size of the learning rate
        torch.testing.assert_close(actual[name], value, atol=tolerance, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("batch", [BATCH, SHARED], ids=["different prompts", "shared prompts"])
@pytest.mark.parametrize("kind", ["tiny", "gpt2", "llama"])
def test_micro_batching_gives_the_same_update(kind, batch, size):
    whole, (first, _) = updated(kind, batch)
    parts, (small, _) = updated(kind, batch, micro_batch_size=size)
    assert_same_weights(parts, whole)
    assert small.grad_norm == pytest.approx(first.grad_norm, rel=1e-4)
    assert small.entropies == pytest.approx(first.entropies, abs=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_is_that_of_plain_unpadded_forwards(kind):
    """One sequence alone at a time, no padding, no sharing: the norm and direction of the whole gradient."""
    worker, plain = policy(build(kind), max_grad_norm=None), build(kind)
    weights = (1.0, -0.5, 0.25, -1.5, 0.75, 2.0, -1.0, 0.5)
    for item, weight in zip(SHARED, weights):
        ids = torch.tensor([[*item.prompt_ids, *item.token_ids]])
        log_p = torch.log_softmax(plain(input_ids=ids).logits[0], -1)
        start = len(item.prompt_ids) - 1
        score = sum(log_p[start + i, token] for i, token in enumerate(item.token_ids))
        (-weight * score / 8).backward()
    worker.learner.step = lambda: 0.0  # keep the gradient
    worker.update([Term(c, w, 1 / 8) for c, w in zip(SHARED, weights)])
    for (name, own), other in zip(worker.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=1e-4, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("batch", [BATCH, SHARED], ids=["different prompts", "shared prompts"])
@pytest.mark.parametrize("kind", MODELS)
def test_gradient_checkpointing_gives_the_same_update(kind, batch):
    plain, (first, _) = updated(kind, batch)
    saved, (again, _) = updated(kind, batch, gradient_checkpointing=True)
    assert_same_weights(saved, plain)
    assert again.scores == pytest.approx(first.scores, abs=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_gradient_checkpointing_samples_the_same(kind):
    plain = draw(policy(build(kind)))
    saved = draw(policy(build(kind), gradient_checkpointing=True))
    assert [c.token_ids for c in saved] == [c.token_ids for c in plain]
    assert [c.logprob for c in saved] == pytest.approx([c.logprob for c in plain], abs=1e-4)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_dropout_is_off(kind, checkpointing):
    worker = policy(build(kind, dropout=0.5), gradient_checkpointing=checkpointing)
    clean = build(kind)  # the same weights without dropout
    expected = [sum(reference(clean, c)) for c in BATCH]
    for _ in range(2):
        assert list(map(sum, worker.token_logprobs(BATCH))) == pytest.approx(expected, abs=1e-4)
    assert worker.update([Term(c, 1.0, 0.2) for c in BATCH]).scores == pytest.approx(expected, abs=1e-4)


def test_a_model_handed_over_in_training_mode_has_no_dropout_either():
    model = build("gpt2", dropout=0.5).train()
    worker = policy(model)
    assert worker.token_logprobs(BATCH) == worker.token_logprobs(BATCH)


# --- where a completion ends -------------------------------------------------------------------


def ending_at(position, **options):
    """A model and prompt that write token t for the first time at `position`, and the tokens up to there."""
    model = build("llama")
    for seed in range(50):
        (first,) = draw(policy(model), ["abc"], 1, seed, max_new_tokens=8)
        ids = first.token_ids
        if len(ids) > position and ids[position] not in (*ids[:position], 2):
            return model, seed, ids[: position + 1]
    raise AssertionError("no such completion in 50 draws")


@pytest.mark.parametrize("position", [0, 3])
def test_a_second_eos_id_ends_and_is_scored(position):
    model, seed, ids = ending_at(position)
    model.generation_config.eos_token_id = [2, ids[-1]]
    worker = policy(model)
    (c,) = draw(worker, ["abc"], 1, seed, max_new_tokens=8)
    assert c.token_ids == ids  # the terminator included, nothing after it
    assert c.finished
    assert c.logprob == pytest.approx(sum(reference(model, c)), abs=1e-4)
    assert len(worker.token_logprobs([c])[0]) == position + 1


@pytest.mark.parametrize("position", [0, 3])
def test_pad_equal_to_eos(position):
    model, seed, ids = ending_at(position)
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(ids[-1])
    model.generation_config = GenerationConfig(eos_token_id=ids[-1], pad_token_id=ids[-1], bos_token_id=1)
    worker = policy(model, tokenizer)
    assert worker.pad == ids[-1]
    (c,) = draw(worker, ["abc"], 1, seed, max_new_tokens=8)
    assert (c.token_ids, c.finished) == (ids, True)
    # together with completions that go on, the trailing padding is neither kept nor scored
    drawn = draw(worker, ["abc", "d"], 8, seed, max_new_tokens=8)
    for c in drawn:
        assert c.token_ids.count(ids[-1]) == int(c.finished)
        assert c.logprob == pytest.approx(sum(reference(model, c)), abs=1e-4)


def test_no_eos_at_all():
    model = build("llama")
    model.generation_config = GenerationConfig(pad_token_id=0)
    model.config.eos_token_id = None
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    worker = policy(model, tokenizer)
    drawn = draw(worker, max_new_tokens=5)
    assert [len(c.token_ids) for c in drawn] == [5] * 6
    assert not any(c.finished for c in drawn)
    for c in drawn:
        assert c.logprob == pytest.approx(sum(reference(model, c)), abs=1e-4)


def test_no_pad_token_at_all():
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    worker = policy(build("llama"), tokenizer)
    for c in draw(worker):
        assert c.logprob == pytest.approx(sum(reference(worker.model, c)), abs=1e-4)


def test_a_sampled_pad_id_is_an_ordinary_token():
    # pad 0 drawn in the middle: the completion goes on
    model, seed, ids = ending_at(2)
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(ids[-1])
    (c,) = draw(policy(model, tokenizer), ["abc"], 1, seed, max_new_tokens=8)
    assert c.token_ids[:3] == ids
    assert len(c.token_ids) > 3


def test_truncated_completion_is_not_finished():
    drawn = draw(policy(), max_new_tokens=1)
    assert all(len(c.token_ids) == 1 for c in drawn)
    assert [c.finished for c in drawn] == [c.token_ids == (2,) for c in drawn]


# --- the checkpoint's generation settings do not leak in ---------------------------------------

STICKY = {"top_k": 1, "repetition_penalty": 5.0, "top_p": 0.1, "temperature": 0.1, "min_new_tokens": 4,
          "no_repeat_ngram_size": 2, "do_sample": False, "max_length": 7}  # fmt: skip


def test_generation_defaults_of_the_checkpoint_are_not_inherited():
    clean = draw(policy(build("llama")))
    model = build("llama")
    model.generation_config = GenerationConfig(**IDS, **STICKY)
    worker = policy(model)
    sticky = draw(worker)
    assert [c.token_ids for c in sticky] == [c.token_ids for c in clean]
    for c in sticky:
        assert c.logprob == pytest.approx(sum(reference(model, c)), abs=1e-4)


def test_generation_config_is_put_back():
    model = build("llama")
    model.generation_config = own = GenerationConfig(**IDS, **STICKY)
    before = copy.deepcopy(own.to_dict())
    draw(policy(model))
    assert model.generation_config is own
    assert own.to_dict() == before


def test_generation_config_is_put_back_after_an_error(monkeypatch):
    model = build("llama")
    own = model.generation_config
    monkeypatch.setattr(model, "forward", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        draw(policy(model))
    assert model.generation_config is own


def test_sampled_frequencies_follow_the_models_distribution():
    # 2,000 one-token draws against the model's own probabilities: for p near 0.2 the standard error is 0.009
    worker = policy(build("llama"))
    drawn = draw(worker, ["abc"], 2000, max_new_tokens=1)
    ids = torch.tensor([drawn[0].prompt_ids])
    with torch.no_grad():
        p = torch.softmax(worker.model(input_ids=ids).logits[0, -1].double(), -1)
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=259) / 2000
    assert (counts - p).abs().max().item() < 0.05


# --- prompts -----------------------------------------------------------------------------------


def prompt_of(worker, prompt):
    (c,) = draw(worker, [prompt], 1, max_new_tokens=1)
    return c


def test_plain_text_gets_one_bos():
    c = prompt_of(policy(), "hi")
    assert c.prompt == "hi"
    assert c.prompt_ids[0] == 1 and c.prompt_ids.count(1) == 1 and len(c.prompt_ids) == 3


def test_text_that_starts_with_bos_gets_no_second_one():
    c = prompt_of(policy(), "<|bos|>hi")
    assert c.prompt_ids == prompt_of(policy(), "hi").prompt_ids


def test_chat_messages_use_the_template_once():
    c = prompt_of(policy(), [{"role": "user", "content": "hi"}])
    assert c.prompt == "<|bos|>user: hi\nassistant: "
    assert c.prompt_ids.count(1) == 1 and c.prompt_ids[0] == 1


def test_messages_without_a_template_are_a_clear_error():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match=r"agent 0.*no chat template.*plain text"):
        prompt_of(policy(tokenizer=tokenizer), [{"role": "user", "content": "hi"}])


def test_a_prompt_that_contains_the_pad_id_is_kept_whole():
    worker = policy(build("llama"))
    drawn = draw(worker, ["ab<|pad|>cd", "a longer neighbour for padding"], 2)
    assert drawn[0].prompt_ids.count(0) == 1 and len(drawn[0].prompt_ids) == 6  # bos a b pad c d
    for c in drawn:
        assert c.logprob == pytest.approx(sum(reference(worker.model, c)), abs=1e-4)


def test_an_empty_prompt_starts_from_bos():
    assert prompt_of(policy(), "").prompt_ids == (1,)


def test_text_is_decoded_without_special_tokens_and_with_its_spaces():
    encode = policy().encode
    ids = encode.tokenizer(" a , b .", add_special_tokens=False).input_ids
    assert encode.decode((*ids, 2)) == " a , b ."


def test_a_prompt_too_long_for_the_context_names_the_lengths():
    # bos + 59 bytes = 60 tokens; 60 + 6 > 64
    with pytest.raises(ValueError, match=r"agent 0.*60 tokens.*max_new_tokens 6.*64"):
        draw(policy(build("gpt2")), ["x" * 59], 1)


def test_a_prompt_that_just_fits():
    (c,) = draw(policy(build("gpt2")), ["x" * 57], 1)  # 58 + 6 = 64
    assert c.logprob == pytest.approx(sum(reference(build("gpt2"), c)), abs=1e-4)


# --- random numbers ----------------------------------------------------------------------------


def test_generating_leaves_the_global_random_states_alone():
    worker = policy()
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    expected = torch.rand(3).tolist(), random.random(), np.random.rand()
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    draw(worker)
    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == expected


def test_the_seed_alone_decides():
    worker = policy()
    first = draw(worker, seed=11)
    draw(worker, ["something else"], 2, seed=12)  # an evaluation in between
    torch.rand(100)
    assert draw(worker, seed=11) == first
    assert draw(worker, seed=13) != first


def test_completions_of_one_prompt_differ():
    assert len({c.token_ids for c in draw(policy(), ["abc"], 6)}) > 1


@pytest.mark.parametrize("batch_size", [None, 6, 4, 2, 1])
def test_generation_batch_size_only_splits_the_work(batch_size):
    worker = policy(build("llama"))
    sizes = []
    worker.model.get_output_embeddings().register_forward_pre_hook(lambda _, args: sizes.append(args[0].shape[0]))
    rows = worker.generate(["abc", "a much longer prompt"], 3, sampling(batch_size=batch_size), 3)
    assert max(sizes) <= (batch_size or 6)
    assert [[c.prompt for c in row] for row in rows] == [["abc"] * 3, ["a much longer prompt"] * 3]
    for c in (c for row in rows for c in row):
        assert c.logprob == pytest.approx(sum(reference(worker.model, c)), abs=1e-4)


# --- reference KL ------------------------------------------------------------------------------


def team(kind, frozen, **config):
    own = policy(build(kind), **config)
    other = LanguageModel(frozen, tiny_tokenizer(), own.config, CPU, "reference")
    return own, Team([LocalHandle(own)], [LocalHandle(other)])


@pytest.mark.parametrize("kind", MODELS)
def test_kl_to_an_identical_reference_is_exactly_zero(kind):
    _, pair = team(kind, build(kind), micro_batch_size=4)
    ((rows),) = pair.generate([["abc", "a much longer prompt"]], 3, sampling(), [3])
    assert [c.kl for row in rows for c in row] == [0.0] * 6


def test_kl_with_dropout_in_the_checkpoint_is_exactly_zero():
    own = policy(build("gpt2", dropout=0.5), gradient_checkpointing=True)
    other = LanguageModel(build("gpt2", dropout=0.5), tiny_tokenizer(), own.config, CPU, "reference")
    (rows,) = Team([LocalHandle(own)], [LocalHandle(other)]).generate([["abc"]], 3, sampling(), [3])
    assert [c.kl for c in rows[0]] == [0.0] * 3


def test_kl_is_the_k3_sum_over_the_completion():
    frozen = build("gpt2")
    own, pair = team("gpt2", frozen, temperature=0.6)
    own.update([Term(c, 1.0, 0.2) for c in BATCH])
    (rows,) = pair.generate([["abc"]], 3, sampling(temperature=0.6), [3])
    for c in rows[0]:
        q = np.array(reference(frozen, c, 0.6)) - np.array(reference(own.model, c, 0.6))
        expected = (np.exp(q) - q - 1).sum()
        assert expected > 1e-6
        assert c.kl == pytest.approx(expected, abs=1e-4)
