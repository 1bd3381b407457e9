"""GGUF files for tests, made of others."""
import struct


class Header:
    """What stands in front of a file's data, by ggml's docs/gguf.md."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of the types of values, by their number

    def __init__(self, data):
        assert data[:8] == b"GGUF\x03\0\0\0"
        self.data, self.at = data, 8
        tensors, values = self.number(), self.number()
        self.values = {}
        for _ in range(values):
            key = self.take(self.number()).decode()
            self.values[key] = self.value(self.number(4))
        self.keys_end = self.at
        self.parameters = 0
        for _ in range(tensors):
            self.take(self.number())
            size = 1
            for _ in range(self.number(4)):
                size *= self.number()
            self.parameters += size
            self.take(12)

    def take(self, size):
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self, size=8):
        return int.from_bytes(self.take(size), "little")

    def value(self, kind):
        """Whole numbers and texts as such, floats as their bytes."""
        if kind == 8:  # a text
            return self.take(self.number()).decode()
        if kind == 9:  # an array
            kind, length = self.number(4), self.number()
            return [self.value(kind) for _ in range(length)]
        return self.take(self.SIZES[kind]) if kind in (6, 12) else self.number(self.SIZES[kind])


def with_keys(data, keys):
    """The file with further keys, whose values are numbers (u32) or texts."""
    header, added = Header(data), b""
    for key, value in keys.items():
        added += struct.pack("<Q", len(key)) + key.encode()
        if isinstance(value, int):
            added += struct.pack("<II", 4, value)
        else:
            added += struct.pack("<IQ", 8, len(value.encode())) + value.encode()

    def padded(bytes):  # to the alignment that files have unless they say another one
        return bytes + b"\0" * (-len(bytes) % 32)

    front = data[:16] + struct.pack("<Q", int.from_bytes(data[16:24], "little") + len(keys))
    front += data[24:header.keys_end] + added + data[header.keys_end:header.at]
    return padded(front) + data[len(padded(data[:header.at])):]
