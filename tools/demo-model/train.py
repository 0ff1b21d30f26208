"""Train the demo model for a fixed number of seconds, on one GPU or (through torchrun) on several.

Data rows come from shard files that make_data.py writes into --data while training runs; each shard is used once and
deleted.  Muon updates the hidden matrices and AdamW the rest, with bf16 matrix products and f32 master weights.  The
learning rate warms up, stays, and falls linearly to zero at the end of the time.  In the later part of the run some
steps see weights rounded to 4 or 3 bits (straight-through), so that the result survives quantisation.

usage: train.py --data SHARDS --out checkpoint.pt --seconds 1100
       torchrun --nproc-per-node 2 train.py --data SHARDS --out checkpoint.pt --seconds 1100 --init model.safetensors
"""

import argparse
import glob
import os
import re
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

import checkpoint
from model import Config, Model
from quantisation import StraightThrough

SYNC_STEPS = 50
REPORT_STEPS = 200
ROUNDING = (None, 4, None, 4, None, 3)
ADAM_LEAVES = ("gate", "sh_g", "a", "b", "conv")


def newton_schulz(gradient):
    """Approximately the nearest semi-orthogonal matrix, for a batch of matrices: a quintic iteration in bf16."""
    x = gradient.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).float()


class Muon:
    """Momentum with an orthogonalised update, scaled to AdamW's update RMS of 0.2; equal shapes share a batch."""

    def __init__(self, parameters, momentum=0.95):
        """`parameters`: pairs of a parameter and how many matrices are stacked in its rows."""
        self.momentum = momentum
        self.groups = {}
        for parameter, stacked in parameters:
            self.groups.setdefault((tuple(parameter.shape), stacked), []).append(parameter)
        self.velocity = {key: [torch.zeros_like(p) for p in group] for key, group in self.groups.items()}
        self.orthogonalise = torch.compile(newton_schulz, dynamic=False)

    @torch.no_grad()
    def step(self, rate, decay):
        for (shape, stacked), group in self.groups.items():
            gradients = [p.grad for p in group]
            velocity = self.velocity[shape, stacked]
            torch._foreach_lerp_(velocity, gradients, 1 - self.momentum)
            nesterov = torch.stack(torch._foreach_lerp(gradients, velocity, self.momentum))
            matrices = nesterov.reshape(-1, shape[-2] // stacked, shape[-1])
            update = self.orthogonalise(matrices) * (0.2 * max(matrices.shape[-2:]) ** 0.5)
            torch._foreach_mul_(group, 1 - rate * decay)
            torch._foreach_add_(group, list(update.view_as(nesterov).unbind(0)), alpha=-rate)


class Loader:
    """Reads this rank's shards (those of producers whose number is `rank` modulo `ranks`) in the order of their age."""

    def __init__(self, folder, rows, rank, ranks):
        self.folder, self.rows, self.rank, self.ranks = folder, rows, rank, ranks
        self.shard, self.next_row = None, 0
        self.waits = 0

    def mine(self, path):
        producer = int(re.match(r"s(\d+)_", os.path.basename(path)).group(1))
        return producer % self.ranks == self.rank

    def read_shard(self):
        while True:
            files = [path for path in glob.glob(f"{self.folder}/*.npz") if self.mine(path)]
            if files:
                oldest = min(files, key=os.path.getmtime)
                with np.load(oldest) as arrays:
                    shard = [torch.from_numpy(arrays[key].astype(np.int32)) for key in ("ids", "w", "doc")]
                os.remove(oldest)
                return shard
            self.waits += 1
            time.sleep(0.1)

    def __call__(self):
        """-> token ids, loss weights and document numbers, each [rows, length]."""
        if self.shard is None or self.next_row + self.rows > len(self.shard[0]):
            self.shard, self.next_row = self.read_shard(), 0
        part = slice(self.next_row, self.next_row + self.rows)
        self.next_row += self.rows
        ids, weights, documents = (array[part].pin_memory().cuda(non_blocking=True) for array in self.shard)
        return ids.long(), weights.float() / 16, documents.long()


class Clock:
    """The elapsed share of the run, the same on every rank: measured on rank 0 now and then, extrapolated between."""

    def __init__(self, seconds, ranks):
        self.seconds, self.ranks = seconds, ranks
        self.start = time.time()
        self.base, self.base_step, self.pace = 0.0, 0, 0.0

    def share(self, step):
        if step % SYNC_STEPS == 0 and step > 0:
            now = torch.tensor((time.time() - self.start) / self.seconds, device="cuda", dtype=torch.float64)
            if self.ranks > 1:
                dist.broadcast(now, 0)
            now = now.item()
            self.pace = (now - self.base) / (step - self.base_step)
            self.base, self.base_step = now, step
        return self.base + (step - self.base_step) * self.pace


def split_parameters(model):
    """-> what Muon updates (with the number of stacked matrices), what AdamW updates."""
    muon, adam = [], []
    for name, parameter in model.named_parameters():
        leaf = name.split(".")[-1]
        if leaf == "gate_up":
            muon.append((parameter, 2))
        elif parameter.ndim >= 2 and name.startswith("blocks") and leaf not in ADAM_LEAVES:
            muon.append((parameter, 1))
        else:
            adam.append(parameter)
    return muon, adam


def weighted_loss(model, hidden, ids, weights, documents):
    """Next-token cross-entropy, weighted by token and not across document borders."""
    targets = ids[:, 1:]
    weight = (documents[:, 1:] == documents[:, :-1]).float() * weights[:, 1:]
    logits = model.logits(hidden[:, :-1], torch.bfloat16)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
    return (loss.view_as(weight) * weight).sum() / weight.sum().clamp(min=1)


def compiled_blocks(model):
    """One compiled forward function per kind of block, bound to every block of that kind."""
    by_kind = {block.kind: block for block in model.blocks}
    forward = {kind: torch.compile(type(block).forward, dynamic=False) for kind, block in by_kind.items()}
    return [lambda *inputs, block=block: forward[block.kind](block, *inputs) for block in model.blocks]


def average_gradients(parameters, ranks):
    """Replace every gradient by its mean over the ranks, in one transfer."""
    if ranks == 1:
        return
    gradients = [p.grad for p in parameters]
    flat = torch._utils._flatten_dense_tensors(gradients)
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    torch._foreach_copy_(gradients, list(torch._utils._unflatten_dense_tensors(flat, gradients)))


def save(model, path):
    """Write a checkpoint so that a reader never sees half of it."""
    torch.save(model.state_dict(), path + ".tmp")
    os.replace(path + ".tmp", path)


def learning_rate(options, step, share):
    """Warm-up over steps, then constant, then linear decay over the last `decay` of the time."""
    return options.rate * min(1, (step + 1) / options.warmup) * min(1, (1 - share) / options.decay)


def train(options, rank, ranks):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    config = Config()
    model = Model(config).cuda()
    if options.init:
        model.load_state_dict(checkpoint.load(options.init, config))
    muon_parameters, adam_parameters = split_parameters(model)
    parameters = [p for p, _ in muon_parameters] + adam_parameters
    muon = Muon(muon_parameters)
    adam = torch.optim.AdamW(adam_parameters, lr=0.0, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, fused=True)
    rounding = StraightThrough(model)
    blocks = compiled_blocks(model)
    loss_of = torch.compile(weighted_loss, dynamic=False)
    loader = Loader(options.data, options.rows, rank, ranks)
    clock, saved, losses, step = None, time.time(), [], 0
    while True:
        share = clock.share(step) if clock else 0.0
        if share >= 1:
            break
        # The first steps also take every path once, so that all is compiled before the clock starts.
        bits = ROUNDING[step % len(ROUNDING)] if share >= options.rounding or clock is None else None
        ids, weights, documents = loader()
        if bits:
            rounding.enter(bits)
        hidden, balance = model.hidden(ids, documents, torch.bfloat16, True, blocks)
        loss = loss_of(model, hidden, ids, weights, documents)
        (loss + options.balance * balance).backward()
        if bits:
            rounding.leave()
        average_gradients(parameters, ranks)
        torch.nn.utils.clip_grad_norm_(adam_parameters, 1.0)
        rate = learning_rate(options, step, share)
        muon.step(rate, options.weight_decay)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        model.zero_grad(set_to_none=True)
        step += 1
        if clock is None and step == len(ROUNDING):
            torch.cuda.synchronize()
            clock, step = Clock(options.seconds, ranks), 0
        if step % SYNC_STEPS == 0 and clock:
            losses.append(loss.item())
        if step % REPORT_STEPS == 0 and rank == 0 and losses:
            tokens = step * options.rows * ranks * ids.shape[1] / 1e6
            print(
                f"step {step} {share:.1%} loss {np.mean(losses):.4f} balance {balance.item():.3f} rate {rate:.1e} "
                f"{tokens:.0f} M tokens, {time.time() - clock.start:.0f} s, waited {loader.waits}",
                flush=True,
            )
            losses = []
        if rank == 0 and time.time() - saved > options.save_every:
            save(model, options.out)
            saved = time.time()
    if rank == 0:
        save(model, options.out)
        print(f"done: {step} steps, {step * options.rows * ranks * ids.shape[1] / 1e6:.0f} M tokens", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of shards")
    parser.add_argument("--out", default="checkpoint.pt")
    parser.add_argument("--init", help="weights to start from: a checkpoint or model.safetensors")
    parser.add_argument("--seconds", type=float, default=1100)
    parser.add_argument("--rows", type=int, default=32, help="rows of 2,048 tokens in a step, per GPU")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--decay", type=float, default=0.45, help="share of the time spent in the final decay")
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the load-balance loss")
    parser.add_argument("--rounding", type=float, default=0.4, help="share of the time after which rounding begins")
    parser.add_argument("--save-every", type=float, default=150, help="seconds between checkpoints")
    options = parser.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    train(options, rank, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
