"""LEB128 varints, the numbers of postcard and of frame lengths."""

from nodes.mesh.errors import PostcardError

ONE_BYTE = [bytes((n,)) for n in range(256)]


def encode_varint(value: int) -> bytes:
    """LEB128 of a number that is not negative."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(view: memoryview | bytes, position: int, bits: int = 64) -> tuple[int, int]:
    """The LEB128 number at `position` and the position after it; `PostcardError` if it has more than `bits`."""
    byte = view[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise PostcardError(f"a varint of too many bytes at byte {position}")
    if value >> bits:
        raise PostcardError(f"a varint of more than {bits} bits ends at byte {position}")
    return value, position
