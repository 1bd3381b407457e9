#!/usr/bin/env python3
"""Train a Quire demo model from scratch and save it as a Qwen3 or Qwen3.5 checkpoint.

Worker processes make text with generate.py, tokenise it and pack it into rows
of --seq-len tokens; the main process trains on them.  Neither attention nor the
state of a gated delta net crosses the border of a document, and only answers
(and plain text) are learned.  Master weights are float32, the arithmetic is
bfloat16, and the saved checkpoint is bfloat16.

    python3 train.py --tokenizer models/quire-demo --out models/quire-demo --minutes 8
    python3 train.py --arch qwen3_5 --tokenizer models/quire-demo --out models/quire-demo-hybrid --minutes 9

Training stops after --steps or --minutes, whichever comes first; the learning
rate falls linearly towards that moment.
"""

import argparse
import bisect
import json
import multiprocessing as mp
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

import dense
import generate
import hybrid

LEARN, START, ID_MASK = 0x8000, 0x4000, 0x3FFF
ARCHITECTURES = {"qwen3": dense, "qwen3_5": hybrid}


# --------------------------------------------------------------------------
# Data
# --------------------------------------------------------------------------

class Encoder:
    def __init__(self, path):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        self.end = self.tok.token_to_id("<|endoftext|>")
        self.im_start, self.im_end = self.tok.token_to_id("<|im_start|>"), self.tok.token_to_id("<|im_end|>")
        head = self.tok.encode("<|im_start|>assistant\n").ids
        assert len(head) == 3, head
        self.assistant = head[1]
        self.off = self.tok.encode(generate.THINK_OFF).ids

    def encode(self, docs, limit):
        """Each document as uint16: the id, LEARN where it is a target, START at its first token."""
        out = []
        for e, text in zip(self.tok.encode_batch(docs, add_special_tokens=False), docs):
            ids = e.ids
            if text.startswith("<|im_start|>"):
                a = np.array(ids, dtype=np.uint16)
                i, n = 0, len(ids)
                while True:
                    try:
                        i = ids.index(self.im_start, i)
                    except ValueError:
                        break
                    if i + 3 < n and ids[i + 1] == self.assistant:
                        i += 3
                        if ids[i:i + len(self.off)] == self.off:
                            i += len(self.off)
                        j = ids.index(self.im_end, i)
                        a[i:j + 1] |= LEARN
                        i = j
                    else:
                        i += 1
            else:
                a = np.array(ids + [self.end], dtype=np.uint16)
                a[1:] |= LEARN
            a = a[:limit]
            a[0] = (a[0] & ID_MASK) | START
            out.append(a)
        return out


def make_shard(enc, seed, rows, length):
    """rows x length tokens, packed by best fit, longest document first."""
    r = random.Random(seed)
    docs, total = [], 0
    while total < 0.99 * rows * length:
        batch = enc.encode([generate.document(r) for _ in range(256)], length)
        docs += batch
        total += sum(len(d) for d in batch)
    docs.sort(key=len, reverse=True)
    out = np.full((rows, length), enc.end | START, dtype=np.uint16)
    free = [(length, i) for i in range(rows)]  # sorted by space left
    for d in docs:
        k = bisect.bisect_left(free, (len(d), -1))
        if k == len(free):
            continue
        space, i = free.pop(k)
        out[i, length - space:length - space + len(d)] = d
        if space > len(d):
            bisect.insort(free, (space - len(d), i))
    np.random.default_rng(seed).shuffle(out)
    return out


def worker(w, workers, tokenizer, folder, seed, rows, length, ahead, done):
    os.nice(5)
    enc = Encoder(tokenizer)
    i = w
    while True:
        while i > done.value + ahead:
            time.sleep(0.05)
        a = make_shard(enc, seed * 1_000_003 + i, rows, length)
        tmp = os.path.join(folder, f"tmp{w}.npy")
        np.save(tmp, a)
        os.rename(tmp, os.path.join(folder, f"shard{i}.npy"))
        i += workers


class Shards:
    """Shards in order; when the workers fall behind, an earlier one again."""

    def __init__(self, args, folder):
        self.args, self.folder, self.done = args, folder, mp.Value("q", 0)
        self.pool, self.next, self.fresh, self.again = [], 0, 0, 0
        self.r = random.Random(args.seed)
        self.procs = [mp.Process(target=worker, daemon=True, args=(w, args.workers, args.tokenizer, folder, args.seed, args.shard_rows, args.seq_len, args.ahead, self.done))
                      for w in range(args.workers)]
        for p in self.procs:
            p.start()

    def get(self, wait):
        path = os.path.join(self.folder, f"shard{self.next}.npy")
        while not os.path.exists(path) and (wait or not self.pool):
            time.sleep(0.02)
        if os.path.exists(path):
            a = torch.from_numpy(np.load(path).view(np.int16)).to(self.args.device)
            os.remove(path)
            self.next += 1
            self.fresh += 1
            self.done.value = self.next
            self.pool.append(a)
            return a
        self.again += 1
        a = self.r.choice(self.pool)
        return a[torch.randperm(a.shape[0], device=a.device)]

    def batches(self, rows):
        left = None
        while True:
            a = self.get(wait=len(self.pool) < self.args.min_shards)
            left = a if left is None else torch.cat([left, a])
            while left.shape[0] >= rows:
                yield left[:rows]
                left = left[rows:]

    def stop(self):
        for p in self.procs:
            p.terminate()


# --------------------------------------------------------------------------
# Training
# --------------------------------------------------------------------------

def save(model, config, out):
    """model.safetensors in bfloat16, config.json, generation_config.json."""
    from safetensors.torch import save_file
    os.makedirs(out, exist_ok=True)
    sd = {"model." + k: v.detach().to("cpu", torch.bfloat16).contiguous().clone() for k, v in model.state_dict().items()}
    save_file(sd, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    for name, obj in (("config.json", config), ("generation_config.json", {
            "bos_token_id": config["bos_token_id"], "do_sample": False, "eos_token_id": [config["eos_token_id"], config["bos_token_id"]],
            "pad_token_id": config["pad_token_id"]})):
        with open(os.path.join(out, name), "w") as f:
            json.dump(obj, f, indent=2)
            f.write("\n")


def load(model, folder):
    """The weights that save() wrote, back into the float32 parameters."""
    from safetensors.torch import load_file
    weights = load_file(os.path.join(folder, "model.safetensors"))
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in weights.items()})


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--arch", choices=tuple(ARCHITECTURES), default="qwen3")
    ap.add_argument("--tokenizer", default="models/quire-demo")
    ap.add_argument("--out", default="models/quire-demo")
    ap.add_argument("--init", help="folder of a checkpoint of the same shape to go on from; give another --seed for other text")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--minutes", type=float, default=8.0, help="training time, compilation included")
    ap.add_argument("--seq-len", type=int, default=2048)
    ap.add_argument("--batch-rows", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2.5e-3)
    ap.add_argument("--warmup", type=int, default=300)
    ap.add_argument("--weight-decay", type=float, default=0.1)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--intermediate", type=int, help="default: 768 for qwen3, 640 for qwen3_5")
    ap.add_argument("--layers", type=int, default=8)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--kv-heads", type=int, default=2)
    ap.add_argument("--head-dim", type=int, default=64)
    ap.add_argument("--linear-key-heads", type=int, default=4, help="of the gated delta nets, as the two below")
    ap.add_argument("--linear-value-heads", type=int, default=8)
    ap.add_argument("--linear-head-dim", type=int, default=64)
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    ap.add_argument("--shard-rows", type=int, default=256)
    ap.add_argument("--min-shards", type=int, default=64, help="fresh shards to see before any is used again")
    ap.add_argument("--ahead", type=int, default=400, help="shards that workers may be ahead")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--attention", choices=("flex", "causal"), default="flex" if torch.cuda.is_available() else "causal",
                    help="causal: plain causal attention that does see earlier documents of the row; delta nets still do not")
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--save-every", type=float, default=120, help="seconds between checkpoints")
    args = ap.parse_args()

    started = time.time()
    tmp = tempfile.mkdtemp(prefix="quire-demo-")
    shards = Shards(args, tmp)  # before CUDA is touched: the workers are forks
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    enc = Encoder(args.tokenizer)
    arch = ARCHITECTURES[args.arch]
    c = arch.config(args, enc.tok.get_vocab_size())
    c |= {"bos_token_id": enc.end, "eos_token_id": enc.im_end, "pad_token_id": enc.end, "torch_dtype": "bfloat16"}
    dev = args.device
    model = arch.Model(c).to(dev)
    if args.init:
        load(model, args.init)
    params = sum(p.numel() for p in model.parameters())
    print(f"parameters {params / 1e6:.2f} M, {2 * params / 1e6:.2f} MB as bfloat16", flush=True)

    decay = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() != 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": args.weight_decay}, {"params": plain, "weight_decay": 0.0}],
                            lr=args.lr, betas=(0.9, 0.95), eps=1e-10, fused=dev == "cuda")

    if args.attention == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        make_mask = torch.compile(create_block_mask)

        def loss_of(ids, targets, mask, doc):
            return model(ids, targets, lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True), doc)
    else:
        def loss_of(ids, targets, mask, doc):
            return model(ids, targets, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), doc)
    if not args.no_compile:
        loss_of = torch.compile(loss_of, dynamic=False)

    it = shards.batches(args.batch_rows)
    step, seen, learned, last, last_save, t0 = 0, 0, 0, time.time(), time.time(), None
    window = []
    limit = args.minutes * 60
    while True:
        elapsed = time.time() - started
        progress = max(step / args.steps, elapsed / limit)
        if progress >= 1:
            break
        lr = args.lr * min(1.0, (step + 1) / args.warmup) * max(0.0, 1.0 - progress)
        for g in opt.param_groups:
            g["lr"] = lr
        raw = next(it).int() & 0xFFFF
        ids = (raw & ID_MASK).long()
        targets = torch.where((raw & LEARN) != 0, ids, -1)[:, 1:]
        targets = F.pad(targets, (0, 1), value=-1).contiguous()
        doc = ((raw & START) != 0).int().cumsum(1)
        mask = None
        if args.attention == "flex":
            def visible(b, h, q, k):
                return (q >= k) & (doc[b, q] == doc[b, k])

            mask = make_mask(visible, ids.shape[0], None, ids.shape[1], ids.shape[1], device=dev)
        n = (targets >= 0).sum()
        with torch.autocast(dev, torch.bfloat16):
            total = loss_of(ids, targets, mask, doc)
        loss = total / n
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        seen += ids.numel()
        window.append(loss.detach())
        if t0 is None:
            if dev == "cuda":
                torch.cuda.synchronize()
            t0, seen0 = time.time(), seen
            print(f"first step after {t0 - started:.0f} s", flush=True)
        if step % 100 == 0 or step < 10:
            v = torch.stack(window).mean().item()
            window = []
            now = time.time()
            print(f"step {step:6d}  loss {v:.4f}  lr {lr:.2e}  {seen / 1e6:8.1f} M tokens  {(seen - seen0) / max(1e-9, now - t0) / 1e6:.2f} M/s  "
                  f"shards {shards.fresh}+{shards.again}  {now - started:.0f} s", flush=True)
        if time.time() - last_save > args.save_every:
            last_save = time.time()
            save(model, c, args.out)
    save(model, c, args.out)
    shards.stop()
    shutil.rmtree(tmp, ignore_errors=True)
    print(f"trained {params / 1e6:.2f} M parameters, {step} steps, {seen / 1e6:.0f} M tokens ({shards.fresh} shards of text, {shards.again} used again), "
          f"{(time.time() - started) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
