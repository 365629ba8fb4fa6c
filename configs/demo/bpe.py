# SPDX-License-Identifier: Apache-2.0
"""A byte-level BPE: training by pair counts, encoding by merge ranks. For ASCII text the word pattern is Qwen2's."""
import collections
import re

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CUT = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")


def alphabet():
    """GPT-2's printable stand-in for each byte."""
    own = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    out, extra = {}, 0
    for byte in range(256):
        out[byte] = chr(byte) if byte in own else chr(256 + extra)
        extra += byte not in own
    return out


class Bpe:
    def __init__(self, tokens, merges):
        """tokens: bytes of each token, specials last as text; merges: (left bytes, right bytes) in order of rank."""
        self.tokens, self.merges = tokens, merges
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.rank = {m: i for i, m in enumerate(merges)}
        self.cache = {}

    @staticmethod
    def train(texts, size):
        counts = collections.Counter()
        for text in texts:
            for part in CUT.split(text):
                if part not in SPECIALS:
                    counts.update(WORDS.findall(part))
        words = [([bytes([b]) for b in w.encode()], n) for w, n in sorted(counts.items())]
        tokens, merges = [bytes([b]) for b in range(256)], []
        while len(tokens) < size - len(SPECIALS):
            pairs = collections.Counter()
            for parts, n in words:
                for pair in zip(parts, parts[1:]):
                    pairs[pair] += n
            best = max(pairs, key=lambda p: (pairs[p], p))
            merges.append(best)
            tokens.append(best[0] + best[1])
            for parts, _ in words:
                i = 0
                while i + 1 < len(parts):
                    if (parts[i], parts[i + 1]) == best:
                        parts[i:i + 2] = [best[0] + best[1]]
                    i += 1
        return Bpe(tokens + SPECIALS, merges)

    def encode_word(self, word):
        if word not in self.cache:
            parts = [bytes([b]) for b in word.encode()]
            while len(parts) > 1:
                rank, at = min((self.rank.get(p, 1 << 30), i) for i, p in enumerate(zip(parts, parts[1:])))
                if rank == 1 << 30:
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            self.cache[word] = [self.ids[p] for p in parts]
        return self.cache[word]

    def encode(self, text):
        out = []
        for part in CUT.split(text):
            if part in SPECIALS:
                out.append(self.ids[part])
            else:
                for word in WORDS.findall(part):
                    out.extend(self.encode_word(word))
        return out

    def decode(self, ids):
        return b"".join(t for t in (self.tokens[i] for i in ids) if isinstance(t, bytes)).decode("utf-8", "replace")
