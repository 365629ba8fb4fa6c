# SPDX-License-Identifier: Apache-2.0
"""Writes and reads GGUF version 3 files, as far as the demo model needs."""
import struct

import numpy as np

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TENSOR_F32, TENSOR_F16 = 0, 1
ALIGNMENT = 32


def _string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, i) for i in items)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def write(path, metadata, tensors):
    """metadata: [(key, kind, value)]; tensors: [(name, array)], float32 or float16, row-major."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, kind, value in metadata:
        head += _string(key) + struct.pack("<I", kind) + _value(kind, value)
    body = b""
    for name, array in tensors:
        kind = TENSOR_F16 if array.dtype == np.float16 else TENSOR_F32
        head += _string(name) + struct.pack("<I", array.ndim)
        head += b"".join(struct.pack("<Q", d) for d in reversed(array.shape))
        head += struct.pack("<IQ", kind, len(body))
        body += array.tobytes()
        body += b"\0" * (-len(body) % ALIGNMENT)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as out:
        out.write(head + body)


class Reader:
    """metadata: {key: value}; tensors: {name: float32 array}."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 4
        version, n_tensors, n_metadata = self._take("<IQQ")
        assert self.data[:4] == b"GGUF" and version == 3
        self.metadata = {}
        for _ in range(n_metadata):
            key = self._text()
            self.metadata[key] = self._read(self._take("<I")[0])
        infos = []
        for _ in range(n_tensors):
            name = self._text()
            dims = [self._take("<Q")[0] for _ in range(self._take("<I")[0])]
            infos.append((name, dims[::-1]) + self._take("<IQ"))
        base = self.at + (-self.at % ALIGNMENT)
        self.tensors = {}
        for name, shape, kind, offset in infos:
            dtype = np.float16 if kind == TENSOR_F16 else np.float32
            flat = np.frombuffer(self.data, dtype, int(np.prod(shape)), base + offset)
            self.tensors[name] = flat.reshape(shape).astype(np.float32)

    def _take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def _text(self):
        n, = self._take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def _read(self, kind):
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            inner, n = self._take("<IQ")
            return [self._read(inner) for _ in range(n)]
        return self._take({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind])[0]
