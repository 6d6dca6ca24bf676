"""The contender without a framework: two processes, each with a loop as any user writes it.

With `--members C` the first C clients score the others by a double loop of `torch.norm` in one
thread, and average the nearest: the cost of CMFL without a kernel and a ledger.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.multiprocessing as multiprocessing

from benchmarks import workloads

PROCESSES = 2


def main() -> None:
    """Run the rounds and hand in what they took."""
    arguments = workloads.contender_arguments()
    workload = workloads.read_workload(arguments.work)
    clients, dimension = len(workload.y), len(workload.start)
    start = torch.from_numpy(workload.start).share_memory_()
    rows = clients if arguments.members else PROCESSES
    results = torch.zeros(rows, dimension).share_memory_()
    context = multiprocessing.get_context("spawn")
    pipes = []
    for place in range(PROCESSES):
        pipe, theirs = context.Pipe()
        work = (theirs, arguments.work, place, start, results, bool(arguments.members))
        context.Process(target=_work, args=work, daemon=True).start()
        pipes.append(pipe)
    clock, first = workloads.RoundClock(), torch.empty(0)
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
    workloads.hand_in(arguments.out, clock, first.numpy(), ["torch"])


def _work(
    pipe: Connection,
    folder: Path,
    place: int,
    start: torch.Tensor,
    results: torch.Tensor,
    keeps: bool,
) -> None:
    torch.set_num_threads(1)
    workload = workloads.read_workload(folder)
    module = workloads.module_of(workload.work)
    end = torch.empty_like(start)
    while pipe.recv():
        if not keeps:
            results[place].zero_()
        for client in range(place, len(workload.y), PROCESSES):
            workloads.load_flat(module, start)
            workloads.run_sgd(module, workload, client)
            parameters = workloads.trained_parameters(module)
            torch.cat([each.detach().view(-1) for each in parameters], out=end)
            difference = start - end
            if keeps:
                results[client] = difference
            else:
                results[place] += difference
        pipe.send("trained")


def _nearest_mean(updates: torch.Tensor, members: int) -> torch.Tensor:
    trainers = range(members, len(updates))
    scores = [
        sum(float(torch.norm(updates[k] - updates[c])) ** 2 for c in range(members))
        for k in trainers
    ]
    nearest = torch.tensor(scores).argsort()[: int(0.4 * len(trainers))] + members
    return updates[nearest].mean(0)


if __name__ == "__main__":
    main()
