"""parallel_training="mp": real worker processes train as one process does, fail with the same words, and never stay."""

import contextlib
import gc
import os
import re
import tempfile
import threading
import warnings
from pathlib import Path

import psutil
import pytest
import torch
from children import gone, until, workers
from transformers import AutoModelForCausalLM
from worker_models import Moody, gpt2

from workbench.config import MAGRPOConfig
from workbench.models.critic import load_critic
from workbench.models.learner import TrainingDiverged
from workbench.models.loading import ModelError, ModelOptions
from workbench.models.tiny import tiny_tokenizer
from workbench.models.workers import WorkerPlan
from workbench.parallel.handles import WorkerDiedError
from workbench.parallel.processes import ProcessHandle, exit_cause, start_processes
from workbench.tracking.base import NullMonitor, NullTracker
from workbench.trainers.actor_critic import IACTrainer, MAACTrainer
from workbench.trainers.reinforce import MAGRPOTrainer, MAREINFORCETrainer, MAReMaxTrainer, MARLOOTrainer
from workbench.types import Completion, Sampling

TINY = "builtin:tiny"
CPU = torch.device("cpu")
TOKEN_SAMPLING = Sampling(max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=0, batch_size=None)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums depend on how many threads share them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_process_left():
    before = {process.pid for process in workers()}
    yield
    gc.collect()
    assert {process.pid for process in workers()} <= before


class Recorder(NullTracker):
    def __init__(self):
        self.records, self.late = [], []

    def nodes(self, records):
        self.records += records

    def normalized(self, rows):
        self.late += rows


def lengths(*completions):
    """How many different characters the team wrote: shared, varied, deterministic."""
    return [float(len(set("".join(texts)))) for texts in zip(*completions)]


def make(trainer, mode, fields=(), **arguments):
    """A trainer of two agents, as `mode` says, whose formatters, reward and transition are lambdas and closures."""
    who = ["first", "second"]
    settings = {"num_turns": 1, "num_train_epochs": 2, "max_new_tokens": 3, "eval_interval": 0,
                "agent_learning_rate": 1e-2, "early_termination_threshold": None} | dict(fields)  # fmt: skip
    if mode == "mp":
        settings |= {"parallel_training": "mp", "agent_devices": "cpu"}
        if arguments.keys() & {"critic_model", "critics"}:
            settings["critic_devices"] = ["cpu"]
    given = {
        "reward_func": lambda *completions: lengths(*completions),
        "formatters": [lambda item, external_prompts=None, i=i: f"{external_prompts or item['prompt']}, {who[i]}"
                       for i in range(2)],
        "external_transition": lambda agent_completions, **context: [f"then {text}" for text in agent_completions],
        "train_dataset": [{"prompt": f"item {i}"} for i in range(3)],
        "args": trainer.config_class(**settings),
    } | arguments  # fmt: skip
    if "agents" not in given:
        given |= {"agent_model": TINY, "num_agents": 2}
    built = trainer(**given)
    built.seen = Recorder()
    built.tracker.trackers.append(built.seen)
    return built


@contextlib.contextmanager
def made(*arguments, **named):
    with contextlib.closing(make(*arguments, **named)) as trainer:
        yield trainer


def states(trainer, folder):
    """Everything that learning changed, of agents and critics, as each wrote it: [worker] of nested containers."""
    found = []
    for i, handle in enumerate(trainer.workers()):
        handle.submit("write_state", folder / f"{i}.pt").result()
        found.append(torch.load(folder / f"{i}.pt", weights_only=True))
    return found


def assert_equal(one, other):
    """Bit for bit, in nested containers of tensors."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def mixed():
    """Agents of two families; the second is loaded already."""
    return {"agents": [TINY, gpt2()], "tokenizer": tiny_tokenizer()}


KL_TWO_TURNS = {"num_turns": 2, "reference_kl_enabled": True, "reference_kl_coef": 0.5}
CASES = {
    "mareinforce": lambda: (MAREINFORCETrainer, {"num_generations": 3}, {}),
    "magrpo": lambda: (MAGRPOTrainer, {"num_generations": 2, **KL_TWO_TURNS}, mixed()),
    "marloo": lambda: (MARLOOTrainer, {"num_generations": 3, "joint_mode": "cross"}, {}),
    "maremax": lambda: (MAReMaxTrainer, {"num_generations": 2, "num_turns": 2, "rollout_buffer_size": 4}, {}),
    "maac": lambda: (MAACTrainer, {"rollout_buffer_size": 2, **KL_TWO_TURNS}, {**mixed(), "critic_model": gpt2(4)}),
    "iac": lambda: (IACTrainer, {"rollout_buffer_size": 2, "critic_type": "q"}, {"critic_model": TINY}),
    "shared iac": lambda: (IACTrainer, {"num_turns": 2, "use_separate_critic": False, "rollout_buffer_size": 2}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_processes_learn_what_one_process_learns(case, tmp_path):
    results = []
    for mode in ("none", "mp"):
        trainer, fields, arguments = CASES[case]()
        with made(trainer, mode, fields, **arguments) as built:
            assert len({process.pid for process in workers()}) == (0 if mode == "none" else number_of_models(built))
            before = states(built, tmp_path)
            built.train()
            after, agents = states(built, tmp_path), built.agents
            results.append((built.seen.records, built.seen.late, before, after, [a.state_dict() for a in agents]))
    for one, other in zip(*results):
        if one and isinstance(one[0], dict):
            assert_equal(one, other)
        else:
            assert one == other
    for state, learned in zip(*results[1][2:4]):  # it did learn, the value heads included
        for part in state.keys() & {"model", "head"}:
            assert any(not torch.equal(state[part][name], learned[part][name]) for name in state[part])


def number_of_models(trainer):
    return len({*trainer.team.policies, *trainer.team.references, *trainer.critics})


class StopAt(NullMonitor):
    def __init__(self, item, trainer):
        self.item, self.trainer = item, trainer

    def stop_requested(self):
        return self.trainer.cursor.done >= self.item


def test_a_run_goes_on_in_either_mode_and_its_model_loads(tmp_path):
    """Item 4 of 6 is the middle of the second epoch, with samples in the buffers."""
    fields = {"rollout_buffer_size": 3, "train_batch_size": 2, "shuffle": True, "lr_scheduler": "linear"}

    def maac(mode):
        return made(MAACTrainer, mode, fields, critic_model=TINY, agents=[TINY, gpt2()], tokenizer=tiny_tokenizer())

    with maac("none") as whole:
        whole.train()
        expected, records = states(whole, tmp_path), whole.seen.records
    for first, second in (("none", "mp"), ("mp", "none")):
        with maac(first) as broken:
            broken.checkpoint_dir = tmp_path / first
            broken.monitor = StopAt(4, broken)
            broken.train()
            assert broken.stopped
            seen = broken.seen.records
        with maac(second) as resumed:
            resumed.train(resume_from_checkpoint=tmp_path / first / "step-00000004")
            assert_equal(states(resumed, tmp_path), expected)
            assert seen + resumed.seen.records == records
            if second == "mp":
                check_saved_model(resumed, tmp_path / "model", expected)


def check_saved_model(trainer, folder, states_):
    trainer.save_model(folder)
    for i, agent in enumerate(trainer.agents):
        saved = AutoModelForCausalLM.from_pretrained(folder / f"agent_{i}").state_dict()
        assert_equal(dict(saved), dict(agent.state_dict()))
    _, head = load_critic(folder / "critic")
    assert_equal(dict(head.state_dict()), dict(states_[-1]["head"]))


# --- how workers fail -----------------------------------------------------------------------------


def one_agent(mode="mp", fields=(), **arguments):
    given = {"reward_func": lambda texts: [1e38 * len(text) for text in texts], "formatters": None} | arguments
    return made(MAGRPOTrainer, mode, {"num_generations": 2, **dict(fields)}, agents=[TINY], **given)


def errors_of(mode):
    """What a long prompt and a reward beyond float32 raise, and a value that no forward survives."""
    found = []
    with one_agent(mode, {"advantage_normalization": False}) as built:
        for call in (lambda: built.play([{"prompt": "x" * 2000}]), built.train):
            with pytest.raises((ValueError, TrainingDiverged)) as caught:
                call()
            found.append(caught.value)
    return found


def test_errors_are_those_of_one_process():
    here, there = errors_of("none"), errors_of("mp")
    assert [type(error) for error in there] == [type(error) for error in here] == [ValueError, TrainingDiverged]
    assert [str(error) for error in there] == [str(error) for error in here]
    assert "exceeds its context" in str(there[0])
    for error, place in zip(there, ("_check_length", "_check_scores|_clip")):
        assert re.search(place, "".join(error.__notes__))  # the worker's own traceback


def test_a_model_that_cannot_load_ends_the_others(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=re.escape(f"Cannot load '{tmp_path}'")):
        make(MAGRPOTrainer, "mp", {"num_generations": 2}, agents=[TINY, str(tmp_path)], tokenizer=tiny_tokenizer())
    assert workers() == []


def test_a_model_from_the_main_script_is_explained():
    """A class that only this process has, as one defined in a notebook."""
    kind = type("Local", (type(gpt2()),), {"__module__": "worker_models"})
    globals()["Local"] = kind
    with pytest.raises(ModelError, match=r"agent 0 cannot be sent to a process of its own.*Local"):
        start_processes([plan(gpt2(kind=kind))])
    kind.__module__ = "__main__"
    main = __import__("__main__")
    main.Local = kind
    with pytest.raises(ModelError, match=r"agent 0 cannot be rebuilt.*Local.*in a module that can be imported"):
        start_processes([plan(gpt2(kind=kind))])
    del main.Local


def plan(source=TINY, name="agent 0"):
    args = MAGRPOConfig(num_turns=1, parallel_training="mp", agent_devices="cpu")
    return WorkerPlan("policy", name, source, tiny_tokenizer(), ModelOptions(), args, CPU)


def ask(handle, prompt):
    return handle.submit("generate", [prompt], 1, TOKEN_SAMPLING, 0)


def test_what_a_worker_says_reaches_the_caller():
    (handle,) = start_processes([plan(gpt2(kind=Moody))])
    with pytest.warns(UserWarning, match="agent 0: the weather changes"):
        ask(handle, "wet").result()
    with pytest.raises(RuntimeError, match="Exact: out of paper, code 7") as caught:
        ask(handle, "empty").result()
    assert str(caught.value) == "Exact: out of paper, code 7"
    assert "worker_models.py" in "".join(caught.value.__notes__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ask(handle, "fine").result()) == 1
    last_words = r"^agent 0 on cpu died: killed by SIGABRT; its last lines: .*assertion failed in line 3"
    dying, after = ask(handle, "abort"), ask(handle, "fine")
    for call in (dying, after):  # also what was sent before anybody knew
        with pytest.raises(WorkerDiedError, match=last_words):
            call.result()
    handle.close()


def test_a_dead_worker_ends_the_training_and_the_others():
    with made(MAGRPOTrainer, "mp", {"num_generations": 2}) as built:
        one, other = workers()
        victim = next(p for p in (one, other) if p.pid == built.team.policies[1].process.pid)
        victim.kill()
        with pytest.raises(WorkerDiedError, match="agent 1 on cpu died: killed by SIGKILL, by someone or by the sy"):
            built.train()
        gone([one, other])
        with pytest.raises(RuntimeError, match=r"The process of agent 0 was closed; build another trainer\."):
            built.play([{"prompt": "x"}])


@pytest.mark.parametrize(("code", "words"), [
    (None, "it stopped answering"), (0, "exit code 0"), (3, "exit code 3"), (-11, "killed by SIGSEGV"),
    (-9, "killed by SIGKILL, by someone or by the system for lack of memory"), (-40, "killed by signal 40"),
])  # fmt: skip
def test_exit_causes_in_words(code, words):
    assert exit_cause(code) == words


# --- how workers end ------------------------------------------------------------------------------


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_starting_and_closing_leaks_nothing():
    """Closed while they load, at once and twice."""
    gc.collect()
    before, threads = open_files(), threading.active_count()
    for _ in range(5):
        handles = [ProcessHandle(plan(), 1), ProcessHandle(plan(gpt2()), 1)]
        for handle in [*handles, *handles]:
            handle.close()
            assert handle.process.returncode is not None
            with pytest.raises(RuntimeError, match="The process of agent 0 was closed"):
                handle.ready()
        del handle, handles
    gc.collect()
    until(lambda: threading.active_count() <= threads, "threads that end")
    assert open_files() <= before


def test_a_forgotten_trainer_takes_its_workers_along():
    built = make(MAGRPOTrainer, "mp", {"num_generations": 2}, agents=[TINY], formatters=None)
    (process,) = workers()
    del built
    gc.collect()
    gone([process])


def test_no_temporary_folder_is_an_error_before_any_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(OSError, match="gone"):
        start_processes([plan()])
    assert workers() == []


# --- what can cross -------------------------------------------------------------------------------


def test_much_text_a_moved_folder_and_a_source_that_stays(tmp_path, monkeypatch):
    model = gpt2()
    model.train()
    (handle,) = start_processes([plan(model)])
    texts = [Completion(f"{i} " + "x" * 100_000, (1,), "y", (i % 250 + 3,), True, 0.0) for i in range(300)]
    scores = handle.submit("token_logprobs", texts).result()
    assert [len(row) for row in scores] == [1] * 300
    monkeypatch.chdir(tmp_path)  # the worker stays where it was
    handle.submit("write_state", Path("state.pt")).result()
    assert (tmp_path / "state.pt").is_file()
    assert_equal(dict(handle.model().state_dict()), dict(model.state_dict()))
    assert model.training  # the user's own object is not touched
    handle.close()


def test_two_trainers_in_threads_of_one_program():
    expected, found = [], {}
    with made(MAREINFORCETrainer, "none", {"num_generations": 2}, agents=[TINY], formatters=None) as built:
        built.train()
        expected = built.seen.records

    def train(number):
        with made(MAREINFORCETrainer, "mp", {"num_generations": 2}, agents=[TINY], formatters=None) as built:
            built.train()
            found[number] = built.seen.records

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: expected, 1: expected}
    assert not any(psutil.pid_exists(process.pid) for process in workers())
