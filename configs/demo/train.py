#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model from text that corpus.py writes, and stores it as infos-demo.gguf. See README.md.

    /usr/bin/python3 train.py                # about 15 minutes on two cores; Debian: python3-torch, python3-numpy
    /usr/bin/python3 train.py --check        # reloads the file with numpy alone and asks it
"""
import argparse
import math
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from corpus import MIX, MIX_NUMBERS  # noqa: E402

FILE = os.path.join(HERE, "infos-demo.gguf")
VOCAB, DIM, LAYERS, HEADS, KV_HEADS, FFN, CONTEXT = 768, 128, 4, 4, 2, 320, 512
HEAD_DIM, THETA, EPSILON = DIM // HEADS, 10000.0, 1e-5
SEED, BATCH_TOKENS = 20240607, 1536

# (number, steps, peak learning rate, tokens per row of successive steps, mix of questions): most text is short.
STAGES = [(1, 2000, 4e-3, [128, 256, 128, 128, 256, 128, 512, 128], MIX), (2, 600, 2e-3, [128, 128, 256], MIX_NUMBERS)]

TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


# ---- training ----------------------------------------------------------------------------------------------------------
def make_model(torch):
    nn, f = torch.nn, torch.nn.functional

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(DIM))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            kv = KV_HEADS * HEAD_DIM
            self.attn_norm, self.ffn_norm = Norm(), Norm()
            self.attn_q, self.attn_k = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, kv, bias=False)
            self.attn_v, self.attn_output = nn.Linear(DIM, kv, bias=False), nn.Linear(DIM, DIM, bias=False)
            self.ffn_gate, self.ffn_up = nn.Linear(DIM, FFN, bias=False), nn.Linear(DIM, FFN, bias=False)
            self.ffn_down = nn.Linear(FFN, DIM, bias=False)

        def forward(self, x, cos, sin, mask):
            b, t, _ = x.shape
            y = self.attn_norm(x)

            def rotate(z, heads):  # pairs of neighbours, as GGUF's llama architecture has them
                z = z.view(b, t, heads, HEAD_DIM // 2, 2)
                even, odd = z[..., 0], z[..., 1]
                z = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
                return z.view(b, t, heads, HEAD_DIM).transpose(1, 2)

            q, k = rotate(self.attn_q(y), HEADS), rotate(self.attn_k(y), KV_HEADS)
            v = self.attn_v(y).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
            k, v = (z.repeat_interleave(HEADS // KV_HEADS, 1) for z in (k, v))
            scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM) + mask, -1)
            x = x + self.attn_output((scores @ v).transpose(1, 2).reshape(b, t, DIM))
            y = self.ffn_norm(x)
            return x + self.ffn_down(f.silu(self.ffn_gate(y)) * self.ffn_up(y))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embd = nn.Embedding(VOCAB, DIM)
            self.blk = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.output_norm = Norm()
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    deep = name.endswith(("attn_output.weight", "ffn_down.weight"))
                    nn.init.normal_(p, std=0.05 / (math.sqrt(2 * LAYERS) if deep else 1))
            angles = torch.outer(torch.arange(CONTEXT).float(), THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
            self.cos, self.sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]
            self.mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)

        def forward(self, tokens):
            t = tokens.shape[1]
            x = self.token_embd(tokens)
            for layer in self.blk:
                x = layer(x, self.cos[:, :t], self.sin[:, :t], self.mask[:t, :t])
            return self.output_norm(x) @ self.token_embd.weight.t()

    return Model()


class Batches:
    """Rows of whole documents, one behind the other; each row begins with a document."""

    def __init__(self, corpus, bpe):
        self.corpus, self.bpe = corpus, bpe

    def row(self, length):
        tokens, weights = [], []
        while len(tokens) <= length:
            if self.corpus.r.random() < 0.5:
                tokens.append(self.bpe.ids["<|endoftext|>"])
                weights.append(0.0)
            for text, weight in self.corpus.document():
                ids = self.bpe.encode(text)
                tokens += ids
                weights += [weight] * len(ids)
        return tokens[:length + 1], weights[:length + 1]

    def batch(self, torch, length):
        rows = [self.row(length) for _ in range(BATCH_TOKENS // length)]
        tokens = torch.tensor([t for t, _ in rows])
        weights = torch.tensor([w for _, w in rows])
        return tokens[:, :-1], tokens[:, 1:], weights[:, 1:]


def train_stage(torch, model, batches, stage, out):
    _, steps, peak, rows, _ = stage
    import numpy as np
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=peak, betas=(0.9, 0.98))
    begin, smooth = time.time(), None
    for step in range(steps):
        rate = peak * min(1, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, targets, weights = batches.batch(torch, rows[step % len(rows)])
        losses = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if step % 50 == 49:
            print(f"stage {stage[0]} step {step + 1}/{steps} loss {smooth:.4f} {time.time() - begin:.0f} s", flush=True)
        if step % 250 == 249 or step + 1 == steps:
            save(np, batches.bpe, {k: v.detach().numpy() for k, v in model.state_dict().items()}, out)


def train(out, begin_with):
    import torch
    from bpe import Bpe
    from corpus import Corpus
    torch.manual_seed(SEED)
    model = make_model(torch)
    if begin_with:  # go on with the last stage
        import check
        stored = check.Model(begin_with)
        bpe = stored.bpe
        model.load_state_dict({k: torch.tensor(v) for k, v in stored.t.items()})
    else:
        sample = Corpus(SEED)
        bpe = Bpe.train(["".join(t for t, _ in sample.document()) for _ in range(12000)], VOCAB)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    for stage in STAGES[-1:] if begin_with else STAGES:
        train_stage(torch, model, Batches(Corpus(SEED + stage[0], stage[4]), bpe), stage, out)


def save(np, bpe, weights, out):
    import gguf_file as g
    from bpe import SPECIALS, alphabet
    letters = alphabet()

    def visible(data):
        return "".join(letters[b] for b in data) if isinstance(data, bytes) else data

    end, bos = bpe.ids["<|im_end|>"], bpe.ids["<|endoftext|>"]
    metadata = [
        ("general.architecture", g.STRING, "llama"), ("general.name", g.STRING, "infos-demo"),
        ("general.license", g.STRING, "apache-2.0"), ("general.file_type", g.U32, 1),
        ("llama.context_length", g.U32, CONTEXT), ("llama.embedding_length", g.U32, DIM),
        ("llama.block_count", g.U32, LAYERS), ("llama.feed_forward_length", g.U32, FFN),
        ("llama.attention.head_count", g.U32, HEADS), ("llama.attention.head_count_kv", g.U32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", g.F32, EPSILON), ("llama.rope.freq_base", g.F32, THETA),
        ("llama.rope.dimension_count", g.U32, HEAD_DIM), ("llama.vocab_size", g.U32, VOCAB),
        ("tokenizer.ggml.model", g.STRING, "gpt2"), ("tokenizer.ggml.pre", g.STRING, "qwen2"),
        ("tokenizer.ggml.tokens", g.ARRAY, (g.STRING, [visible(t) for t in bpe.tokens])),
        ("tokenizer.ggml.token_type", g.ARRAY, (g.I32, [1] * (VOCAB - len(SPECIALS)) + [3] * len(SPECIALS))),
        ("tokenizer.ggml.merges", g.ARRAY, (g.STRING, [visible(a) + " " + visible(b) for a, b in bpe.merges])),
        ("tokenizer.ggml.bos_token_id", g.U32, bos), ("tokenizer.ggml.eos_token_id", g.U32, end),
        ("tokenizer.ggml.padding_token_id", g.U32, bos), ("tokenizer.ggml.add_bos_token", g.BOOL, False),
        ("tokenizer.chat_template", g.STRING, TEMPLATE)]
    names = ["token_embd.weight"]
    for i in range(LAYERS):
        names += [f"blk.{i}.{part}.weight" for part in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm",
                                                        "ffn_gate", "ffn_up", "ffn_down")]
    names.append("output_norm.weight")
    tensors = [(n, weights[n].astype(np.float16 if weights[n].ndim == 2 else np.float32)) for n in names]
    g.write(out, metadata, tensors)
    print(f"wrote {out}: {os.path.getsize(out)} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--begin-with", help="a stored model: only the last stage is trained, from it")
    parser.add_argument("--out", default=FILE, help="the GGUF file")
    parser.add_argument("--check", action="store_true", help="ask the stored model instead of training it")
    parser.add_argument("--questions", type=int, default=200, help="how many random questions --check asks per kind")
    args = parser.parse_args()
    if args.check:
        import check
        sys.exit(check.run(args.out, args.questions))
    train(args.out, args.begin_with)


if __name__ == "__main__":
    main()
