"""The contender without a framework: two processes, each with a loop as any user writes it.

With `--members C` every update is kept, the first C clients are the committee, and the others are
scored by a double loop of `torch.norm` in one thread, after which the nearest are averaged: what
CMFL costs who has no kernel and no ledger.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.multiprocessing as multiprocessing
from torch import nn

from benchmarks.workloads import (
    PeerWorkload,
    RoundClock,
    contender_arguments,
    hand_in,
    load_flat,
    module_of,
    read_workload,
    run_sgd,
    trained_parameters,
)

PROCESSES = 2
ACCEPTED = 0.4


def main() -> None:
    """Run the rounds and hand in what they took."""
    arguments = contender_arguments()
    workload = read_workload(arguments.work)
    clients, dimension = len(workload.y), len(workload.start)
    start = torch.from_numpy(workload.start).share_memory_()
    rows = clients if arguments.members else PROCESSES
    results = torch.zeros(rows, dimension).share_memory_()
    pipes = _start_workers(arguments.work, start, results, keeps=bool(arguments.members))
    clock, first = RoundClock(), torch.empty(0)
    torch.set_num_threads(1)
    for number in range(arguments.rounds + 1):
        clock.start()
        begun = time.perf_counter()
        for pipe in pipes:
            pipe.send("train")
        for pipe in pipes:
            pipe.recv()
        training = time.perf_counter() - begun
        if arguments.members:
            mean = _nearest_mean(results, arguments.members)
        else:
            mean = results.sum(0).div_(clients)
        start.sub_(mean)
        clock.stop(training=training)
        if number == 0:
            first = mean.clone()
    for pipe in pipes:
        pipe.send(None)
    hand_in(arguments.out, clock, first.numpy(), ["torch"])


def _start_workers(
    folder: Path, start: torch.Tensor, results: torch.Tensor, *, keeps: bool
) -> list[Connection]:
    context = multiprocessing.get_context("spawn")
    pipes = []
    for place in range(PROCESSES):
        ours, theirs = context.Pipe()
        work = (theirs, folder, place, start, results, keeps)
        context.Process(target=_work, args=work, daemon=True).start()
        pipes.append(ours)
    return pipes


def _work(
    pipe: Connection,
    folder: Path,
    place: int,
    start: torch.Tensor,
    results: torch.Tensor,
    keeps: bool,
) -> None:
    torch.set_num_threads(1)
    workload = read_workload(folder)
    module = module_of(workload.work)
    end = torch.empty_like(start)
    while pipe.recv():
        if not keeps:
            results[place].zero_()
        for client in range(place, len(workload.y), PROCESSES):
            _train(module, workload, client, start, end)
            difference = start - end
            if keeps:
                results[client] = difference
            else:
                results[place] += difference
        pipe.send("trained")


def _train(
    module: nn.Module, workload: PeerWorkload, client: int, start: torch.Tensor, end: torch.Tensor
) -> None:
    load_flat(module, start)
    run_sgd(module, workload, client)
    torch.cat([p.detach().view(-1) for p in trained_parameters(module)], out=end)


def _nearest_mean(updates: torch.Tensor, members: int) -> torch.Tensor:
    trainers = range(members, len(updates))
    scores = torch.tensor(
        [
            sum(float(torch.norm(updates[k] - updates[c])) ** 2 for c in range(members))
            for k in trainers
        ]
    )
    nearest = scores.argsort()[: int(ACCEPTED * len(trainers))] + members
    return updates[nearest].mean(0)


if __name__ == "__main__":
    main()
