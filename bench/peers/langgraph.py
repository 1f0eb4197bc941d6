"""How fast is the same work on LangGraph, with its SQLite checkpointer?"""

from __future__ import annotations

import asyncio
import operator
import statistics
import time
from itertools import count, pairwise
from typing import Annotated, Any, TypedDict

from bench.measurement import Bench, check
from bench.peers import import_peer
from bench.workloads import EXPECTED, STEPS, echo

CONCURRENT = 100


class State(TypedDict):
    """The state of the graph: the sum of what its nodes gave."""

    total: Annotated[int, operator.add]


def measure_langgraph(bench: Bench) -> dict[str, float]:
    """Measure a chain of ten nodes, each checkpointed before the next, 100 at a time and alone."""
    graph_module = import_peer("langgraph.graph", "langgraph")
    saver_module = import_peer("langgraph.checkpoint.sqlite.aio", "langgraph-checkpoint-sqlite")
    graph = graph_module.StateGraph(State)
    names = [f"step{number}" for number in range(STEPS)]
    for number, name in enumerate(names):
        graph.add_node(name, _node(number))
    chain = [graph_module.START, *names, graph_module.END]
    for before, after in pairwise(chain):
        graph.add_edge(before, after)
    return asyncio.run(_measure(graph, saver_module.AsyncSqliteSaver, bench))


def _node(number: int) -> Any:
    async def node(state: State) -> State:  # noqa: ARG001 - what a node is given
        return {"total": await echo(number)}

    return node


async def _measure(graph: Any, saver: Any, bench: Bench) -> dict[str, float]:
    rounds, singles = bench.pick(4, 1), bench.pick(50, 2)
    executions = bench.pick(CONCURRENT, 10)
    threads = count()
    taken: list[float] = []
    async with saver.from_conn_string(str(bench.directory / "langgraph.db")) as checkpointer:
        app = graph.compile(checkpointer=checkpointer)

        async def run() -> None:
            config = {"configurable": {"thread_id": str(next(threads))}}
            state = await app.ainvoke({"total": 0}, config, durability="sync")
            check(holds=state["total"] == EXPECTED, otherwise=f"the state is {state}")

        await run()
        began = time.perf_counter()
        for _ in range(rounds):
            await asyncio.gather(*(run() for _ in range(executions)))
        elapsed = time.perf_counter() - began
        for _ in range(singles):
            alone_began = time.perf_counter()
            await run()
            taken.append(time.perf_counter() - alone_began)
    return {
        "langgraph.steps": rounds * executions * STEPS / elapsed,
        "langgraph.alone": statistics.median(taken) * 1e3,
    }
