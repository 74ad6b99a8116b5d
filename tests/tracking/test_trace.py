"""The trace: what is written is what is read, while writing, after a rewind and from damaged files."""

from __future__ import annotations

import logging
import math
import multiprocessing
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.tracking.trace import (
    VERSION,
    TraceError,
    read_completions,
    read_joints,
    read_metric_keys,
    read_metrics,
    read_nodes,
)
from workbench.tracking.trace_writer import TraceWriter, continue_trace
from workbench.types import CompletionRecord, JointRecord, NodeRecord

COLUMNS = {  # the public names, written out here on purpose
    "nodes": "node_id phase step epoch item turn parent_id parent_joint terminated time",
    "joints": "node_id joint responses reward return",
    "completions": "node_id agent k prompt text tokens finished logprob kl reward return baseline advantage normalized "
    "value target td_error",
    "metrics": "step key value time",
}


def node(node_id: int, phase: str = "train", parent: tuple[int, int] | None = None) -> NodeRecord:
    """Two agents with two completions, aligned; response 1 is unscored."""
    parent_id, parent_joint = parent or (None, None)
    completions = tuple(
        CompletionRecord(agent, k, f"prompt {agent}", f"text {agent}{k}", 3 + k, k == 0, -1.5 * (k + 1), return_=2.0)
        for agent in range(2)
        for k in range(2)
    )
    joints = (JointRecord(0, (0, 0), 1.25, 2.0), JointRecord(1, (1, 1), None, None))
    return NodeRecord(
        node_id, phase, 2 * node_id, 0, 7, 2 if parent else 1, parent_id, parent_joint, False, joints, completions
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.db"


@pytest.fixture
def writer(path: Path) -> TraceWriter:
    return TraceWriter(path)


@pytest.mark.parametrize("table", COLUMNS)
def test_tables_have_the_public_columns(writer: TraceWriter, path: Path, table: str) -> None:
    with sqlite3.connect(path) as database:
        assert [row[1] for row in database.execute(f"PRAGMA table_info({table})")] == COLUMNS[table].split()
        assert database.execute("PRAGMA user_version").fetchone()[0] == VERSION == 1
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_what_is_written_is_read_while_the_writer_is_active(writer: TraceWriter, path: Path) -> None:
    writer.nodes([node(1), node(2, parent=(1, 0))])
    nodes = read_nodes(path)
    assert nodes.drop(columns="time").iloc[1].tolist() == [2, "train", 4, 0, 7, 2, 1, 0, False]
    assert nodes["parent_id"].isna().tolist() == [True, False]
    assert nodes["terminated"].dtype == bool
    joints = read_joints(path, node_ids=[2])
    assert joints["responses"].tolist() == [[0, 0], [1, 1]]
    assert joints["reward"].iloc[0] == 1.25
    assert math.isnan(joints["reward"].iloc[1])
    completions = read_completions(path, node_ids=[1])
    assert list(completions.columns) == COLUMNS["completions"].split()
    # node, agent, k, prompt, text, tokens, finished, logprob: completion 1 of agent 1
    assert completions.iloc[3].tolist()[:8] == [1, 1, 1, "prompt 1", "text 11", 4, False, -3.0]
    assert completions["return"].tolist() == [2.0] * 4
    assert completions["advantage"].isna().all()


def test_readers_filter_by_phase_position_and_limit(writer: TraceWriter, path: Path) -> None:
    writer.nodes([node(0), node(1, "eval"), node(2), node(3)])
    assert read_nodes(path)["node_id"].tolist() == [0, 1, 2, 3]
    assert read_nodes(path, phase="train", after=0, limit=1)["node_id"].tolist() == [2]
    assert read_joints(path, phase="eval")["node_id"].tolist() == [1, 1]
    assert read_completions(path, after=2, columns=("node_id", "k")).to_numpy().tolist() == [[3, 0], [3, 1]] * 2
    assert read_nodes(path, after=3).empty
    with pytest.raises(ValueError, match="no column advntage"):
        read_completions(path, columns=("advntage",))


def test_metrics_keep_their_order_and_a_nan_is_null(writer: TraceWriter, path: Path) -> None:
    writer.metrics(4, {"turn_1/reward_mean": 0.5, "bad": math.nan, "huge": math.inf})
    writer.metrics(8, {"turn_1/reward_mean": 0.75})
    frame = read_metrics(path)
    assert frame["step"].tolist() == [4, 4, 4, 8]
    assert frame["value"].dtype == float
    assert math.isnan(frame["value"].iloc[1])
    assert frame["value"].iloc[2] == math.inf
    assert read_metrics(path, keys=["turn_1/reward_mean"], after_step=4)["value"].tolist() == [0.75]
    assert read_metrics(path, keys=[]).empty
    assert read_metric_keys(path) == ["bad", "huge", "turn_1/reward_mean"]
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT value FROM metrics WHERE key = 'bad'").fetchall() == [(None,)]


def test_rewind_forgets_everything_after_the_mark(writer: TraceWriter, path: Path) -> None:
    writer.nodes([node(1)])
    writer.normalized([(1, 0, 0, 0.5)])
    writer.metrics(2, {"a": 1.0})
    mark = writer.mark()
    writer.normalized([(1, 0, 1, -0.5)])
    writer.nodes([node(2)])
    writer.metrics(4, {"a": 2.0})
    writer.end("FAILED")
    again = TraceWriter(path)
    again.rewind(mark)
    assert read_nodes(path)["node_id"].tolist() == [1]
    assert set(read_joints(path)["node_id"]) == set(read_completions(path)["node_id"]) == {1}
    assert read_metrics(path)["value"].tolist() == [1.0]
    values = read_completions(path)["normalized"]
    assert values.iloc[0] == 0.5
    assert values.iloc[1:].isna().all()
    again.nodes([node(2)])  # the ids after the mark are free again
    again.normalized([(1, 0, 1, -0.25)])
    assert read_completions(path, node_ids=[1])["normalized"].iloc[1] == -0.25


def test_rewind_to_the_beginning_and_without_a_mark(writer: TraceWriter, path: Path) -> None:
    mark = writer.mark()
    writer.rewind({})  # nothing was written: allowed
    writer.nodes([node(0)])
    with pytest.raises(TraceError, match="does not say where the trace"):
        writer.rewind({})
    writer.rewind(mark)
    assert read_nodes(path).empty


def test_one_call_is_one_transaction(writer: TraceWriter, path: Path) -> None:
    with pytest.raises(TraceError, match="a trace holds one run"):
        writer.nodes([node(1), node(2), node(1)])
    assert read_nodes(path).empty
    assert read_completions(path).empty


def test_the_file_closes_at_the_end_and_opens_again(writer: TraceWriter, path: Path) -> None:
    writer.metrics(1, {"a": 1.0})
    writer.end("FINISHED")
    assert [file.name for file in path.parent.iterdir()] == ["trace.db"]
    assert read_metrics(path)["value"].tolist() == [1.0]
    assert [file.name for file in path.parent.iterdir()] == ["trace.db"]  # a reader creates nothing
    writer.metrics(2, {"a": 2.0})
    assert read_metrics(path)["step"].tolist() == [1, 2]


def test_readers_create_no_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"There is no trace at .*trace\.db"):
        read_nodes(tmp_path / "trace.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"no database" * 200, b"SQLite format 3\x00" + bytes(4000)])
def test_damaged_files_are_one_clear_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"trace\.db"):
        read_metrics(path)
    assert path.read_bytes() == content


def test_cut_file_is_one_clear_error(writer: TraceWriter, path: Path) -> None:
    writer.nodes([node(i) for i in range(200)])
    writer.end("FINISHED")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TraceError, match="damaged"):
        read_completions(path)


def test_other_databases_and_newer_traces_are_refused(tmp_path: Path, path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE nodes (a)")
    for use in (TraceWriter, read_nodes):
        with pytest.raises(TraceError, match="not a trace"):
            use(other)
    TraceWriter(path).end("FINISHED")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 2")
    for use in (TraceWriter, read_nodes):
        with pytest.raises(TraceError, match=r"has version 2.*update"):
            use(path)


def test_a_full_disk_names_the_file_and_the_remedy(writer: TraceWriter, path: Path) -> None:
    connection = writer._connection()
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}").fetchall()
    with pytest.raises(OSError, match=r"trace\.db: database or disk is full\. Free some disk space"):
        writer.nodes([node(i) for i in range(200)])
    connection.execute("PRAGMA max_page_count = 100000").fetchall()
    writer.nodes([node(1)])
    assert read_nodes(path)["node_id"].tolist() == [1]


def test_a_read_only_file_names_the_remedy(writer: TraceWriter) -> None:
    writer._connection().execute("PRAGMA query_only = ON")
    with pytest.raises(OSError, match=r"trace\.db: .*readonly.*Make the file and its folder writable"):
        writer.metrics(1, {"a": 1.0})


def test_a_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        TraceWriter(tmp_path / "file" / "trace.db")


def test_another_process_reads_whole_transactions_while_nodes_are_written(writer: TraceWriter, path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        counts = pool.apply_async(count_completions, (path,))
        node_id = 0
        while not counts.ready():
            writer.nodes([node(node_id)])
            node_id += 1
        assert all(completions == 4 * nodes for nodes, completions in counts.get(timeout=30))


def count_completions(path: Path) -> list[tuple[int, int]]:
    """(last node with completions, completions up to it) at 20 moments."""
    frames = [read_completions(path, columns=("node_id", "k")) for _ in range(20)]
    return [(frame["node_id"].nunique(), len(frame)) for frame in frames]


def middle_overwritten(content: bytes) -> bytes:
    return content[:8192] + b"\xff" * (len(content) - 8192)


@pytest.mark.parametrize(
    "damage",
    [middle_overwritten, lambda content: b"no database" * 200, lambda content: content[: len(content) // 2]],
)
def test_a_damaged_trace_is_moved_aside_and_a_new_one_begins(
    writer: TraceWriter, path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    writer.nodes([node(i) for i in range(200)])
    mark = writer.mark()
    writer.end("FAILED")
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        again = continue_trace(path)
        again.rewind(mark)
    (aside,) = path.parent.glob("trace.db.damaged-*")
    assert aside.read_bytes() == damaged
    moved, late = caplog.messages
    assert str(aside) in moved
    assert "does not reach back to the checkpoint" in late
    again.nodes([node(200)])
    assert read_nodes(path)["node_id"].tolist() == [200]


@pytest.mark.parametrize("content", [None, b""])
def test_a_lost_trace_is_begun_again_with_a_warning(
    writer: TraceWriter, path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    writer.nodes([node(0)])
    mark = writer.mark()
    writer.end("FAILED")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        continue_trace(path).rewind(mark)
    assert len(caplog.messages) == 1
    assert "does not reach back to the checkpoint" in caplog.messages[0]


def test_a_good_trace_goes_on_without_a_word(writer: TraceWriter, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer.nodes([node(0)])
    mark = writer.mark()
    writer.nodes([node(1)])
    writer.end("FAILED")
    with caplog.at_level(logging.WARNING):
        again = continue_trace(path)
        again.rewind(mark)
    assert caplog.messages == []
    assert read_nodes(path)["node_id"].tolist() == [0]
    again.clear()
    assert read_nodes(path).empty


def test_a_newer_trace_is_not_moved_aside(writer: TraceWriter, path: Path) -> None:
    writer._connection().execute(f"PRAGMA user_version = {VERSION + 1}")
    writer.end("FINISHED")
    with pytest.raises(TraceError, match="update marl-workbench"):
        continue_trace(path)
    assert path.exists()
