"""Value heads, critics and shared models on real, tiny models: every value is what a plain forward gives."""

import copy
import math

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

from workbench import objectives
from workbench.config import IACConfig
from workbench.models.critic import Critic, load_critic
from workbench.models.learner import TrainingDiverged
from workbench.models.loading import ModelOptions, load_model, with_lora
from workbench.models.shared import SharedPolicy
from workbench.models.tiny import tiny_model, tiny_tokenizer
from workbench.models.value import ValueHead, hidden_size, last_hidden
from workbench.types import Completion, Term, ValueTerm

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CPU = torch.device("cpu")
LORA = {"r": 2, "target_modules": ["q_proj", "v_proj"]}


def gpt2():
    """Absolute positions: a wrong position id changes every value; 64 tokens of context."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=64, n_embd=32, n_layer=2, n_head=2,
                                      initializer_range=0.3, **IDS))  # fmt: skip


def llama():
    """An output layer of its own."""
    return LlamaForCausalLM(LlamaConfig(vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                                        initializer_range=0.3, **IDS))  # fmt: skip


def gemma():
    """Sliding window, soft-capped logits, tied and scaled embeddings."""
    return Gemma2ForCausalLM(Gemma2Config(vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                          num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                                          max_position_embeddings=64, sliding_window=6, query_pre_attn_scalar=8,
                                          initializer_range=0.3, **IDS))  # fmt: skip


MODELS = {"tiny": tiny_model, "gpt2": gpt2, "llama": llama, "gemma": gemma}
HEADS = pytest.mark.parametrize("hidden_dim", [None, 7])


def build(kind="tiny"):
    torch.manual_seed(0)
    model = MODELS[kind]().eval()
    model.generation_config = GenerationConfig(**IDS)
    return model


def stir(head):
    """A head that says something: its last layer starts at zero."""
    torch.manual_seed(1)
    for p in head.parameters():
        torch.nn.init.normal_(p, std=0.5)


def critic(model=None, hidden_dim=None, stirred=True, **fields):
    config = IACConfig(**{"num_turns": 1, "critic_learning_rate": 1e-3} | fields)
    built = Critic(model or build(), tiny_tokenizer(), config, CPU, "critic 0", hidden_dim)
    if stirred:
        stir(built.head)
    return built


def shared(model=None, stirred=True, **fields):
    settings = {"num_turns": 1, "agent_learning_rate": 1e-3, "use_separate_critic": False} | fields
    built = SharedPolicy(model or build(), tiny_tokenizer(), IACConfig(**settings), CPU, "agent 0")
    if stirred:
        stir(built.head)
    return built


def plain_value(worker, ids):
    """Head of the last hidden state of one unpadded sequence."""
    hidden = worker.model(input_ids=torch.tensor([list(ids)]), output_hidden_states=True).hidden_states[-1]
    return worker.head(hidden[:, -1])[0]


def plain_values(worker, sequences):
    with torch.no_grad():
        return [float(plain_value(worker, ids)) for ids in sequences]


def gradients(worker):
    return [p.grad.clone() for p in worker.learner.parameters]


def assert_close(first, second, atol=1e-5):
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=atol, rtol=1e-4)


class Calls:
    """Counts the forwards of a module."""

    def __init__(self, module):
        self.count = 0
        module.register_forward_hook(self)

    def __call__(self, *_):
        self.count += 1


# Different lengths, one token, the pad id inside
SEQUENCES = [(1, 10, 11, 12), (1,), (1, 20, 21, 22, 23, 24, 25, 26, 27), (1, 30, 0, 31), (40, 0)]


# --- the head ------------------------------------------------------------------------------------


@HEADS
def test_a_new_head_says_exactly_zero(hidden_dim):
    head = ValueHead(16, hidden_dim, seed=0)
    assert head(torch.randn(3, 16)).tolist() == [0.0, 0.0, 0.0]
    layers = [m for m in head.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.weight.shape for m in layers] == [(1, 16)] if hidden_dim is None else [(7, 16), (1, 7)]


@HEADS
def test_a_new_head_learns_although_it_starts_at_zero(hidden_dim):
    head = ValueHead(16, hidden_dim, seed=0)
    head(torch.randn(3, 16)).sum().backward()
    last = [m for m in head.modules() if isinstance(m, torch.nn.Linear)][-1]
    assert last.weight.grad.abs().sum() > 0 and last.bias.grad.item() == 3.0


def test_the_seed_decides_the_hidden_layer_and_nothing_else_is_drawn():
    torch.manual_seed(5)
    first = ValueHead(16, 7, seed=3)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    for name, value in ValueHead(16, 7, seed=3).state_dict().items():
        assert torch.equal(value, first.state_dict()[name])
    assert not torch.equal(first.layers[0].weight, ValueHead(16, 7, seed=4).layers[0].weight)


@HEADS
def test_the_head_is_float32_on_a_16_bit_backbone(hidden_dim):
    built = critic(build().bfloat16(), hidden_dim)
    assert {p.dtype for p in built.head.parameters()} == {torch.float32}
    hidden = last_hidden(built.model, SEQUENCES, 0, CPU)
    assert hidden.dtype == torch.bfloat16
    assert built.head(hidden).dtype == torch.float32
    assert all(map(math.isfinite, built.values(SEQUENCES)))
    built.update([ValueTerm(ids, 1.0, 1 / len(SEQUENCES)) for ids in SEQUENCES])
    assert {p.dtype for p in built.head.parameters()} == {torch.float32}


@HEADS
def test_saved_heads_load_back_bit_equal(tmp_path, hidden_dim):
    head = ValueHead(16, hidden_dim, seed=0)
    stir(head)
    head.save(tmp_path / "new" / "folder")
    hidden = torch.randn(5, 16)
    assert torch.equal(ValueHead.load(tmp_path / "new" / "folder")(hidden), head(hidden))


# --- separate critics ----------------------------------------------------------------------------


@HEADS
def test_an_untrained_critic_says_zero(hidden_dim):
    assert critic(hidden_dim=hidden_dim, stirred=False).values(SEQUENCES) == [0.0] * len(SEQUENCES)


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("kind", MODELS)
def test_padded_values_equal_values_one_by_one(kind, size):
    built = critic(build(kind), micro_batch_size=size)
    expected = plain_values(built, SEQUENCES)
    assert max(expected) - min(expected) > 0.1
    assert built.values(SEQUENCES) == pytest.approx(expected, abs=1e-5)
    assert [built.values([ids])[0] for ids in SEQUENCES] == pytest.approx(expected, abs=1e-5)


def test_texts_are_read_with_the_tokenizer():
    built = critic()
    texts = ["abc", "a longer text"]
    ids = [[1, *[tiny_tokenizer().convert_tokens_to_ids(c.replace(" ", "Ġ")) for c in text]] for text in texts]
    assert built.values(texts) == pytest.approx(plain_values(built, ids), abs=1e-5)


def test_no_inputs_are_no_values():
    assert critic().values([]) == []


@pytest.mark.parametrize("kind", MODELS)
def test_no_logits_are_computed(kind):
    model = build(kind)
    calls = Calls(model.get_output_embeddings())
    built = critic(model, micro_batch_size=2)
    built.values(SEQUENCES)
    built.update([ValueTerm(ids, 1.0, 1 / len(SEQUENCES)) for ids in SEQUENCES])
    shared_one = shared(model)
    shared_one.values(SEQUENCES)
    assert calls.count == 0


@pytest.mark.parametrize("size", [1, 2, None])
def test_one_backbone_forward_per_micro_batch(size):
    built = critic(micro_batch_size=size)
    calls = Calls(built.model.base_model)
    built.values(SEQUENCES)
    assert calls.count == math.ceil(5 / (size or 5))
    built.update([ValueTerm(ids, 1.0, 0.2) for ids in SEQUENCES])
    assert calls.count == 2 * math.ceil(5 / (size or 5))


TERMS = [ValueTerm(ids, target, 0.2) for ids, target in zip(SEQUENCES, [1.0, -2.0, 0.5, 3.0, 0.0])]


@pytest.mark.parametrize("kind", ["tiny", "gpt2"])
def test_micro_batches_do_not_change_the_update(kind):
    results, grads, values = [], [], []
    for size in (None, 1, 2):
        built = critic(build(kind), micro_batch_size=size)
        results.append(built.update(TERMS))
        grads.append(gradients(built))
        values.append(built.values(SEQUENCES))
    for i in (1, 2):
        assert results[i].loss == pytest.approx(results[0].loss, rel=1e-5)
        assert results[i].grad_norm == pytest.approx(results[0].grad_norm, rel=1e-4)
        assert_close(grads[i], grads[0])
        assert values[i] == pytest.approx(values[0], abs=1e-4)


@pytest.mark.parametrize("coefficient", [0.6, 0.25])
def test_the_update_follows_the_weighted_mean_squared_error(coefficient):
    built = critic(value_loss_coef=coefficient, max_grad_norm=None)
    twin = critic(copy.deepcopy(built.model))
    # 0.2 * sum of (target - value)^2, by single forwards; the gradient is that of coefficient times it
    loss = sum(0.2 * (t.target - plain_value(twin, t.input)) ** 2 for t in TERMS)
    (coefficient * loss).backward()
    result = built.update(TERMS)
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)  # as reported: without the coefficient
    assert_close(gradients(built), gradients(twin))
    norm = torch.stack([g.norm() for g in gradients(built)]).norm().item()
    assert result.grad_norm == pytest.approx(norm, rel=1e-4)


def test_the_update_uses_the_critics_learning_rate():
    built = critic(critic_learning_rate=3e-3, agent_learning_rate=1.0, max_grad_norm=None)
    before = built.head.layers.bias.item()
    built.update(TERMS)
    assert abs(built.head.layers.bias.item() - before) == pytest.approx(3e-3, rel=1e-3)  # AdamW's first step


def test_updates_bring_the_values_to_the_targets():
    built = critic(stirred=False, critic_learning_rate=1e-2)
    losses = [built.update(TERMS).loss for _ in range(60)]
    assert losses[0] == pytest.approx(2.85)  # zero values: (1 + 4 + 0.25 + 9 + 0) / 5
    assert losses[-1] < 0.2 * losses[0]


def test_gradient_checkpointing_changes_nothing():
    plain, saving = critic(), critic(gradient_checkpointing=True)
    assert saving.values(SEQUENCES) == pytest.approx(plain.values(SEQUENCES), abs=1e-6)
    plain.update(TERMS), saving.update(TERMS)
    assert_close(gradients(saving), gradients(plain))


@pytest.mark.parametrize("kind", ["tiny", "llama"])
def test_only_what_values_depend_on_is_trained(kind):
    built = critic(build(kind))
    built.update(TERMS)
    assert all(p.grad is not None for p in built.learner.parameters)


@HEADS
@pytest.mark.parametrize("kind", ["tiny", "gpt2", "gpt2 in 16 bits"])
def test_saved_critics_load_back_bit_equal(tmp_path, kind, hidden_dim):
    model = build(kind.split()[0])
    built = critic(model.bfloat16() if "16" in kind else model, hidden_dim)
    built.update(TERMS)
    built.save(tmp_path)
    model, head = load_critic(tmp_path)
    with torch.no_grad():
        loaded = head(last_hidden(model.eval(), SEQUENCES, built.pad, CPU)).tolist()
    assert loaded == built.values(SEQUENCES)


def test_a_saved_critic_in_16_bits_loads_back_bit_equal(tmp_path):
    """builtin:tiny has rotary buffers, which from_pretrained keeps in float32 whatever the dtype."""
    built = critic(load_model("builtin:tiny", ModelOptions.parse({"dtype": "bfloat16"})))
    built.update(TERMS)
    built.save(tmp_path)
    model, head = load_critic(tmp_path)
    with torch.no_grad():
        loaded = head(last_hidden(model.eval(), SEQUENCES, built.pad, CPU)).tolist()
    assert loaded == built.values(SEQUENCES)


def test_a_saved_critic_with_an_adapter_loads_with_one_call(tmp_path):
    built = critic(with_lora(build(), LORA), critic_learning_rate=1e-2)
    for _ in range(3):
        built.update(TERMS)
    built.save(tmp_path)
    assert (tmp_path / "config.json").is_file(), "only an adapter was saved, without its base model"
    model, head = load_critic(tmp_path)
    with torch.no_grad():
        loaded = head(last_hidden(model.eval(), SEQUENCES, built.pad, CPU)).tolist()
    assert loaded == pytest.approx(built.values(SEQUENCES), abs=1e-4)  # merged: rounding


def test_an_adapters_critic_trains_the_adapter_and_the_head_only():
    built = critic(with_lora(build(), LORA))
    before = {n: p.clone() for n, p in built.model.named_parameters()}
    for _ in range(2):
        built.update(TERMS)
    changed = {n for n, p in built.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed and all("lora_" in n for n in changed)


@pytest.mark.parametrize(("given", "kind", "tokens"), [
    ("x" * 100, "joint text", 101),  # and the bos
    ((1,) * 65, "history", 65),
])  # fmt: skip
def test_a_context_that_is_too_short_names_the_lengths(given, kind, tokens):
    built = critic(build("gpt2"))
    for call in (lambda: built.values([given]), lambda: built.update([ValueTerm(given, 1.0, 1.0)])):
        with pytest.raises(ValueError, match=rf"critic 0 would read a {kind} of {tokens} tokens.*context is 64"):
            call()
    assert len(built.values([(1,) * 64])) == 1  # exactly full is fine


@pytest.mark.parametrize("target", [math.inf, math.nan, 1e300])
def test_a_broken_target_stops_before_the_step(target):
    built = critic()
    before = copy.deepcopy(built.state())
    with pytest.raises(TrainingDiverged, match="critic 0"):
        built.update([ValueTerm((1, 10), target, 1.0)])
    for name in ("model", "head"):
        assert all(torch.equal(v, before[name][k]) for k, v in built.state()[name].items())
    assert all(p.grad is None for p in built.learner.parameters)


@pytest.mark.parametrize("worker", [critic, shared])
def test_state_round_trip(worker):
    """A worker that loads a state goes on exactly as the one that saved it."""
    step = (lambda w: w.update(TERMS)) if worker is critic else (lambda w: w.update(ACTOR_TERMS))
    first = worker(lr_scheduler="linear")
    step(first), step(first)
    state = copy.deepcopy(first.state())
    other = worker(lr_scheduler="linear")
    other.load_state(state)
    assert other.values(SEQUENCES) == first.values(SEQUENCES)
    step(first), step(other)
    assert other.values(SEQUENCES) == first.values(SEQUENCES)
    for a, b in zip(first.learner.parameters, other.learner.parameters, strict=True):
        assert torch.equal(a, b)


# --- shared models -------------------------------------------------------------------------------


def completion(prompt_ids, token_ids):
    return Completion("", tuple(prompt_ids), "", tuple(token_ids), True, 0.0)


# Different lengths, a one-token completion, the pad id in prompt and completion, one prompt twice
COMPLETIONS = [
    completion([1, 10, 11, 12], [50, 51, 52, 2]),
    completion([1], [60, 2]),
    completion([1, 20, 21, 22, 23, 24, 25, 26, 27], [70, 71, 72, 73, 74, 75, 76]),
    completion([1, 30, 0, 31], [80, 0, 81]),
    completion([1, 10, 11, 12], [2]),
]
ACTOR_TERMS = [
    Term(c, weight, 0.2, "", target, old)
    for c, weight, target, old in zip(
        COMPLETIONS, [1.0, -0.5, 0.0, 2.0, -1.0], [1.0, -2.0, 0.5, 3.0, 0.25], [0.0, 5.0, -5.0, 0.1, 0.0]
    )
]


def read(c, kind):
    return c.prompt_ids + (c.token_ids if kind == "q" else ())


@pytest.fixture
def inside(monkeypatch):
    """{target: value} of what the loss of an update saw."""
    seen = {}
    original = objectives.clipped_value_loss

    def loss(values, old, targets, shares, limit):
        seen.update(zip([round(t, 4) for t in targets.tolist()], values.tolist()))
        return original(values, old, targets, shares, limit)

    monkeypatch.setattr(objectives, "clipped_value_loss", loss)
    return seen


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("critic_type", ["v", "q"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_update_sees_the_values_that_values_gives(kind, critic_type, size, inside):
    built = shared(build(kind), critic_type=critic_type, micro_batch_size=size)
    inputs = [read(c, critic_type) for c in COMPLETIONS]
    expected = plain_values(built, inputs)
    assert max(expected) - min(expected) > 0.1
    assert built.values(inputs) == pytest.approx(expected, abs=1e-5)
    built.update(ACTOR_TERMS)
    assert [inside[t.target] for t in ACTOR_TERMS] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("limit", [None, 0.2])
@pytest.mark.parametrize("critic_type", ["v", "q"])
def test_the_update_is_one_step_on_actor_loss_and_value_loss(critic_type, limit):
    fields = {"critic_type": critic_type, "value_clip_range": limit, "temperature": 0.7, "max_grad_norm": None,
              "value_loss_coef": 0.3}  # fmt: skip
    built, twin = shared(**fields), shared(**fields)
    total = value_total = 0.0
    scores = []
    for t in ACTOR_TERMS:  # by single, unpadded forwards
        c = t.completion
        logits = twin.model(input_ids=torch.tensor([[*c.prompt_ids, *c.token_ids]])).logits[0, len(c.prompt_ids) - 1 :]
        logp = torch.log_softmax(logits[:-1].float() / 0.7, -1)
        score = sum(logp[i, token] for i, token in enumerate(c.token_ids))
        value = plain_value(twin, read(c, critic_type))
        error = (value - t.target) ** 2
        if limit is not None:
            clipped = t.old_value + (value - t.old_value).clamp(-limit, limit)
            error = torch.maximum(error, (clipped - t.target) ** 2)
        total = total - t.share * t.weight * score + 0.3 * t.share * error
        value_total += t.share * error.item()
        scores.append(score.item())
    total.backward()
    result = built.update(ACTOR_TERMS)
    assert result.scores == pytest.approx(scores, abs=1e-4)
    assert result.value_loss == pytest.approx(value_total, rel=1e-4)
    assert_close(gradients(built), gradients(twin))
    assert sum(g.abs().sum() for g in gradients(built)[-2:]) > 0.1  # the head's


@pytest.mark.parametrize("size", [1, 2, 3, None])
@pytest.mark.parametrize("kind", ["tiny", "gpt2"])
def test_one_forward_per_micro_batch_gives_scores_and_values(kind, size):
    built = shared(build(kind), micro_batch_size=size)
    backbone, output = Calls(built.model.base_model), Calls(built.model.get_output_embeddings())
    built.update(ACTOR_TERMS)
    assert backbone.count == output.count == math.ceil(5 / (size or 5))
    assert not built.model.get_output_embeddings()._forward_pre_hooks  # nothing stays behind


@pytest.mark.parametrize("critic_type", ["v", "q"])
def test_micro_batches_do_not_change_a_shared_update(critic_type):
    results, grads = [], []
    for size in (None, 1, 2):
        built = shared(critic_type=critic_type, micro_batch_size=size)
        results.append(built.update(ACTOR_TERMS))
        grads.append(gradients(built))
    for i in (1, 2):
        assert results[i].value_loss == pytest.approx(results[0].value_loss, rel=1e-4)
        assert results[i].scores == pytest.approx(results[0].scores, abs=1e-4)
        assert results[i].grad_norm == pytest.approx(results[0].grad_norm, rel=1e-4)
        assert_close(grads[i], grads[0])


def test_checkpointing_changes_no_shared_update():
    plain, saving = shared(), shared(gradient_checkpointing=True)
    plain.update(ACTOR_TERMS), saving.update(ACTOR_TERMS)
    assert_close(gradients(saving), gradients(plain))


def test_everything_uses_the_agents_learning_rate():
    built = shared(agent_learning_rate=3e-3, critic_learning_rate=1.0, max_grad_norm=None, value_clip_range=None)
    before = built.head.layers.bias.item()
    assert built.update(ACTOR_TERMS).learning_rate == 3e-3
    assert abs(built.head.layers.bias.item() - before) == pytest.approx(3e-3, rel=1e-3)


def test_a_shared_models_head_has_its_own_width():
    built = shared(value_head_hidden_dim=5, critic_value_head_hidden_dim=9)
    assert built.head.layers[0].weight.shape == (5, hidden_size(built.model))


@pytest.mark.parametrize("adapter", [False, True])
def test_a_saved_shared_model_loads_with_its_head(tmp_path, adapter):
    built = shared(with_lora(build(), LORA) if adapter else build(), agent_learning_rate=1e-2)
    built.update(ACTOR_TERMS)
    built.save(tmp_path)
    model, head = load_critic(tmp_path)
    with torch.no_grad():
        loaded = head(last_hidden(model.eval(), SEQUENCES, built.pad, CPU)).tolist()
    values = built.values(SEQUENCES)
    assert loaded == (pytest.approx(values, abs=1e-4) if adapter else values)


@pytest.mark.parametrize("target", [math.inf, math.nan])
def test_a_broken_target_stops_a_shared_update_before_the_step(target):
    built = shared()
    before = copy.deepcopy(built.state())
    with pytest.raises(TrainingDiverged, match=r"agent 0.*item 3, turn 1"):
        built.update([Term(COMPLETIONS[0], 1.0, 1.0, "item 3, turn 1", target, 0.0)])
    for name in ("model", "head"):
        assert all(torch.equal(v, before[name][k]) for k, v in built.state()[name].items())
