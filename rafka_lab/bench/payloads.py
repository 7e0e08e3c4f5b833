"""What benchmark messages hold. Zeros would flatter every codec, disk and cache, so nothing is measured with zeros."""

import json
import random

from rafka_lab.errors import LabError

# Different messages in turn: a codec then finds repetition between messages, as it does in real streams, but no copies.
POOL_MESSAGES = 1000
_POOL_BYTES = 16_000_000
_LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))
_CITIES = ("Lisbon", "Osaka", "Nairobi", "Quito", "Tromsø", "Hanoi", "Perth", "Austin")
_STATES = ("created", "paid", "packed", "shipped", "delivered", "returned")


def pool(kind: str, message_bytes: int, seed: int = 1) -> list[bytes]:
    """Messages of exactly that size: `text` is random letters, as Kafka's ProducerPerformance sends; `json` events."""
    makers = {"text": _text, "json": _json}
    if kind not in makers:
        raise LabError(f"there is no payload {kind!r}: use one of {', '.join(makers)}")
    chance = random.Random(seed)
    count = max(4, min(POOL_MESSAGES, _POOL_BYTES // message_bytes))
    return [makers[kind](chance, message_bytes) for _ in range(count)]


def _text(chance: random.Random, size: int) -> bytes:
    return chance.randbytes(size).translate(_LETTERS)


def _json(chance: random.Random, size: int) -> bytes:
    """Order events, one after the other until the size is reached."""
    text = b""
    while len(text) < size:
        event = {
            "order_id": f"{chance.getrandbits(64):016x}",
            "customer": chance.randrange(1_000_000),
            "state": chance.choice(_STATES),
            "city": chance.choice(_CITIES),
            "amount": round(chance.uniform(1, 900), 2),
            "created_at": 1_790_000_000_000 + chance.randrange(10**9),
        }
        text += json.dumps(event, ensure_ascii=False).encode() + b"\n"
    return text[:size]
