"""Checkpoints on disk: safetensors and config.json, read and written with NumPy alone.

A tensor in memory is float32: BF16 and F16 widen exactly, and are rounded to nearest even when written. F8_E4M3 stays
codes.
"""
import json
from pathlib import Path

import numpy as np

NUMPY_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F8_E4M3": np.uint8}


def bf16_bits(values):
    """float32 -> bit patterns of the nearest bfloat16 (ties to even), uint16. Finite values only."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    """Bit patterns of bfloat16, uint16 -> float32, exact."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path):
    """All tensors of a file: {name: float32 array}."""
    data = Path(path).read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        raw = np.frombuffer(data[start:end], NUMPY_TYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = bf16_values(raw) if entry["dtype"] == "BF16" else raw.astype(np.float32)
    return tensors


def write_safetensors(path, tensors):
    """Writes {name: (dtype, float32 array)}, dtype F32, BF16 or F8_E4M3 (codes), in the order of the dict."""
    header = {"__metadata__": {"format": "pt"}}
    blobs = []
    end = 0
    for name, (dtype, values) in tensors.items():
        stored = bf16_bits(values) if dtype == "BF16" else np.ascontiguousarray(values, NUMPY_TYPES[dtype])
        start, end = end, end + stored.nbytes
        header[name] = {"dtype": dtype, "shape": list(stored.shape), "data_offsets": [start, end]}
        blobs.append(stored.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def read_checkpoint(folder):
    """A checkpoint folder: (config.json as a dict, {name: float32 array})."""
    folder = Path(folder)
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= read_safetensors(path)
    return json.loads((folder / "config.json").read_text()), tensors
