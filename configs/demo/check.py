# SPDX-License-Identifier: Apache-2.0
"""Reloads the stored demo model with numpy alone, asks it, and counts right answers. Used by train.py --check."""
import math

import numpy as np

import facts
import gguf_file
from bpe import SPECIALS, Bpe, alphabet
from corpus import ASK_TERM_HELD_OUT, CANNOT, UNKNOWN, Corpus

SHOWN = ["What is infos?", "tell me about infos", "I heard about infos, what is it?", "Hello!", "What is a KV cache?",
         "what does prefill mean", "Explain the difference between prefill and decode.", "What is a worker?", "What is 7 plus 5?",
         "6*7", "What colour is the sky?", "What sound does a cow make?", "What day comes after Friday?",
         "What is the capital of France?", "Tell me a story about a fox.", "Who was Napoleon?", "Write a poem about the sea.",
         "How do I bake bread?", "Thanks!"]
MUST = {"What is infos?": facts.TERMS["infos"][1], "what's infos": facts.TERMS["infos"][1],
        "Tell me about infos.": facts.TERMS["infos"][1], "Please explain what infos is.": facts.TERMS["infos"][1],
        "What is a KV cache?": facts.TERMS["kv cache"][1], "What is 3 plus 4?": "3 plus 4 is 7."}


class Model:
    """The Llama forward pass with a key-value cache, one sequence, float32."""

    def __init__(self, path):
        file = gguf_file.Reader(path)
        m, self.t = file.metadata, file.tensors
        self.layers, self.dim = m["llama.block_count"], m["llama.embedding_length"]
        self.heads, self.kv_heads = m["llama.attention.head_count"], m["llama.attention.head_count_kv"]
        self.head_dim, self.context = self.dim // self.heads, m["llama.context_length"]
        self.epsilon = m["llama.attention.layer_norm_rms_epsilon"]
        back = {c: b for b, c in alphabet().items()}
        texts = m["tokenizer.ggml.tokens"]
        tokens = [bytes(back[c] for c in t) for t in texts[:-len(SPECIALS)]] + texts[-len(SPECIALS):]
        merges = [tuple(bytes(back[c] for c in side) for side in line.split(" ")) for line in m["tokenizer.ggml.merges"]]
        self.bpe = Bpe(tokens, merges)
        self.end = m["tokenizer.ggml.eos_token_id"]
        angles = np.outer(np.arange(self.context),
                          m["llama.rope.freq_base"] ** (-np.arange(0, self.head_dim, 2) / self.head_dim))
        self.cos, self.sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
        self.parameters = sum(t.size for t in self.t.values())

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.t[name]

    def rotate(self, x, heads, start):
        n = len(x)
        pairs = x.reshape(n, heads, self.head_dim // 2, 2)
        cos, sin = self.cos[start:start + n], self.sin[start:start + n]
        even, odd = pairs[..., 0], pairs[..., 1]
        return np.stack((even * cos - odd * sin, even * sin + odd * cos), -1).reshape(n, heads, self.head_dim)

    def forward(self, tokens, cache):
        """Logits after the last token; `cache` holds keys and values of what came before."""
        x = self.t["token_embd.weight"][tokens]
        n, start = len(tokens), cache[0][0].shape[0] if cache else 0
        for i in range(self.layers):
            w = lambda part: self.t[f"blk.{i}.{part}.weight"].T  # noqa: E731
            y = self.norm(x, f"blk.{i}.attn_norm.weight")
            q = self.rotate(y @ w("attn_q"), self.heads, start)
            k = self.rotate(y @ w("attn_k"), self.kv_heads, start)
            v = (y @ w("attn_v")).reshape(n, self.kv_heads, self.head_dim)
            if start:
                k, v = np.concatenate((cache[i][0], k)), np.concatenate((cache[i][1], v))
                cache[i] = (k, v)
            else:
                cache.append((k, v))
            group = self.heads // self.kv_heads
            kk, vv = np.repeat(k, group, 1), np.repeat(v, group, 1)
            scores = np.einsum("qhd,khd->hqk", q, kk) / math.sqrt(self.head_dim)
            scores += np.triu(np.full((n, start + n), -np.inf), start + 1)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            x = x + np.einsum("hqk,khd->qhd", scores, vv).reshape(n, self.dim) @ w("attn_output")
            y = self.norm(x, f"blk.{i}.ffn_norm.weight")
            gate = y @ w("ffn_gate")
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w("ffn_up"))) @ w("ffn_down")
        return self.norm(x[-1], "output_norm.weight") @ self.t["token_embd.weight"].T

    def answer(self, question, system=None, most=120):
        prompt = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
        prompt += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        tokens, out, cache = self.bpe.encode(prompt), [], []
        while len(out) < most:
            token = int(self.forward(tokens, cache).argmax())
            if token == self.end:
                break
            out.append(token)
            tokens = [token]
        return self.bpe.decode(out)


def rate(model, name, questions):
    wrong = [(q, a, got) for q, a in questions for got in [model.answer(q)] if got != a]
    print(f"{name}: {len(questions) - len(wrong)} of {len(questions)} answered word for word")
    for q, a, got in wrong[:4]:
        print(f"    {q!r}\n      -> {got!r}\n    want {a!r}")
    return 1 - len(wrong) / max(1, len(questions))


def run(path, count):
    model = Model(path)
    print(f"{path}: {model.parameters} parameters")
    for question in SHOWN:
        print(f"  {question}\n    {model.answer(question)}")
    draws = Corpus(987654321)

    def some(draw, n):
        return [draw() for _ in range(n)]

    def held_out():
        ways, answer = draws.r.choice(list(facts.TERMS.values()))
        return draws.r.choice(ASK_TERM_HELD_OUT).format(t=ways[0]), answer

    rate(model, "words, wordings seen", some(draws.term, count))
    rate(model, "words, wordings never seen", some(held_out, count))
    rate(model, "fixed questions", some(draws.fixed, count))
    rate(model, "arithmetic", some(draws.sums, count))
    for name in ("compare", "colour", "animal", "calendar", "opposite", "capital"):
        rate(model, name, some(getattr(draws, name), count // 4))
    refused = [model.answer(draws.unknown()[0]) in (UNKNOWN, CANNOT) for _ in range(count)]
    print(f"unknown: {sum(refused)} of {count} politely refused")
    failed = [q for q, a in MUST.items() for s in (None, "You are a helpful assistant.") if model.answer(q, s) != a]
    print("FAILED: " + ", ".join(failed) if failed else "the questions that must be right are right")
    return 1 if failed else 0
